"""Lab A by another route: bytes of torch's own tensors and of a layer's, named one by one; messages counted one by one."""


def test_a_divides(verdict):
    """Tensors as one and as each of 64 workers would hold them, in torch's dtypes, and what a layer's parts have read."""
    import torch

    P, layers, width, tokens, examples = 6_700_000_000, 32, 4096, 2048, 8
    dtypes = [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32, torch.float32]

    def held(K):
        return sum(torch.empty(P // K, dtype=kind, device="meta").nbytes for kind in dtypes)

    # what is read again, in numbers a place: each norm and product its input, attention q, k and v, GELU its input
    numbers = {"norms": 2, "qkv": 1, "attention": 3, "mix": 1, "up": 1, "gelu": 4, "down": 4}
    a_place = 2 * width * sum(numbers.values()) + 2 * width  # and two dropouts a byte for each number
    passed = examples * tokens * a_place
    inputs = examples * tokens * 2 * width
    guests = 2 * 2 * P // layers  # two layers of parameters

    def share(whole, many):
        return round((held(64) + guests + many) / (held(1) + whole), 2)

    kept, again = layers * passed, layers * inputs + passed
    found = held(64) / held(1), share(kept, kept), share(again, again)
    assert abs(found[0] - 1 / 64) < 1e-9 and found[1:] == (0.42, 0.08)
    assert verdict == ("true" if max(found) < 0.02 else "true if" if found[0] < 0.02 else "false")


def sent(K, n, gathers, scatters):
    """Elements that worker 0 sends around a ring: in each of K - 1 rounds of a collective one chunk of n / K."""
    return sum(n // K for _ in range(gathers + scatters) for _ in range(K - 1))


def test_a_zero_3(verdict):
    """Collectives written down one by one: an all-reduce is a scatter and a gather."""
    K, layers, n = 4, 5, 4000
    plain = layers * sent(K, n, 1, 1)

    def step(frees, micro_batches):
        forward, backward = sent(K, n, 1, 0), sent(K, n, 1 if frees else 0, 1)  # of a layer
        return micro_batches * layers * (forward + backward) / plain

    found = [step(True, 1), step(False, 1), step(True, 4)]
    word = "true" if set(found) == {1.5} else "true if" if 1.5 in found else "false"
    assert found == [1.5, 1.0, 6.0] and verdict == word
