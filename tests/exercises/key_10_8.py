"""Key of problem set 10.8: solutions, and the mistakes that students make."""

from __future__ import annotations

import numpy as np

from labkit.collectives import ring

# -- 1 --------------------------------------------------------------------------------------------------------------


def rate_at(t, eta, K, rule, warm_steps):
    top = eta * (K if rule == "linear" else K**0.5)
    return top if t >= warm_steps else eta + (top - eta) * t / warm_steps


def rate_from_zero(t, eta, K, rule, warm_steps):
    top = eta * (K if rule == "linear" else K**0.5)
    return top if t >= warm_steps else top * t / warm_steps


def rate_never_arrives(t, eta, K, rule, warm_steps):
    top = eta * (K if rule == "linear" else K**0.5)
    return top if t > warm_steps else eta + (top - eta) * t / (warm_steps + 1)


def rate_always_linear(t, eta, K, rule, warm_steps):
    return rate_at(t, eta, K, "linear", warm_steps)


def rate_goes_on_rising(t, eta, K, rule, warm_steps):
    top = eta * (K if rule == "linear" else K**0.5)
    return eta + (top - eta) * t / warm_steps if warm_steps else top


def rate_constant_warm_up(t, eta, K, rule, warm_steps):
    return eta if t < warm_steps else rate_at(t, eta, K, rule, 0)


# -- 2 --------------------------------------------------------------------------------------------------------------


def large_step(comm, g_sum, count, w, v, eta, last_eta, m, decay):
    total = ring.allreduce(comm, np.append(g_sum, count))
    v = m * (eta / last_eta) * v + eta * (total[:-1] / total[-1] + decay * w)
    return w - v, v


def large_decay_by_everyone(comm, g_sum, count, w, v, eta, last_eta, m, decay):
    total = ring.allreduce(comm, np.append(g_sum / count + decay * w, 1.0))
    v = m * (eta / last_eta) * v + eta * total[:-1]
    return w - v, v


def large_uncorrected(comm, g_sum, count, w, v, eta, last_eta, m, decay):
    return large_step(comm, g_sum, count, w, v, eta, eta, m, decay)


def large_mean_of_means(comm, g_sum, count, w, v, eta, last_eta, m, decay):
    return large_step(comm, g_sum / count, 1, w, v, eta, last_eta, m, decay)


def large_corrected_upside_down(comm, g_sum, count, w, v, eta, last_eta, m, decay):
    return large_step(comm, g_sum, count, w, v * (last_eta / eta) ** 2, eta, last_eta, m, decay)


def large_sum_of_gradients(comm, g_sum, count, w, v, eta, last_eta, m, decay):
    total = ring.allreduce(comm, g_sum.copy())
    v = m * (eta / last_eta) * v + eta * (total + decay * w)
    return w - v, v


def large_alone(comm, g_sum, count, w, v, eta, last_eta, m, decay):
    v = m * (eta / last_eta) * v + eta * (g_sum / count + decay * w)
    return w - v, v


# -- 3 --------------------------------------------------------------------------------------------------------------


def _lars(weights, grads, velocities, eta, trust, m, decay, ratio, everywhere=False):
    new_w, new_v = [], []
    for w, g, v in zip(weights, grads, velocities, strict=True):
        part = g
        if w.ndim > 1 or everywhere:
            part = ratio(w, g, trust, decay) * (g + decay * w)
        v = m * v + eta * part
        new_v.append(v)
        new_w.append(w - v)
    return new_w, new_v


def _trust(w, g, trust, decay):
    length, below = np.linalg.norm(w), np.linalg.norm(g) + decay * np.linalg.norm(w)
    return trust * length / below if length > 0 and below > 0 else 1.0


def lars_step(weights, grads, velocities, eta, trust, m, decay):
    return _lars(weights, grads, velocities, eta, trust, m, decay, _trust)


def lars_adapts_biases(weights, grads, velocities, eta, trust, m, decay):
    return _lars(weights, grads, velocities, eta, trust, m, decay, _trust, everywhere=True)


def lars_divides_by_zero(weights, grads, velocities, eta, trust, m, decay):
    def ratio(w, g, trust, decay):
        with np.errstate(all="ignore"):
            return trust * np.linalg.norm(w) / (np.linalg.norm(g) + decay * np.linalg.norm(w))

    return _lars(weights, grads, velocities, eta, trust, m, decay, ratio)


def lars_upside_down(weights, grads, velocities, eta, trust, m, decay):
    return _lars(
        weights, grads, velocities, eta, trust, m, decay, lambda w, g, c, d: c / max(_trust(w, g, 1, d), 1e-9)
    )


def lars_forgets_the_decay_below(weights, grads, velocities, eta, trust, m, decay):
    return _lars(weights, grads, velocities, eta, trust, m, decay, lambda w, g, c, d: _trust(w, g, c, 0.0))


def lars_one_norm_for_all(weights, grads, velocities, eta, trust, m, decay):
    w, g = (np.concatenate([p.ravel() for p in parts]) for parts in (weights, grads))
    return _lars(weights, grads, velocities, eta, trust, m, decay, lambda *_: _trust(w, g, trust, decay))


# -- 4 --------------------------------------------------------------------------------------------------------------


def _lamb(weights, grads, a, q, t, eta, decay, corrected=True, before=False, ratio=None, eps=1e-6):
    new = [], [], []
    for w, g, mean, square in zip(weights, grads, a, q, strict=True):
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        by = (1 - 0.9**t, 1 - 0.999**t) if corrected else (1, 1)
        r = (mean / by[0]) / (np.sqrt(square / by[1]) + eps)
        u = r + decay * w
        length, below = np.linalg.norm(w), np.linalg.norm(r if before else u)
        scale = (
            (length / below if length > 0 and below > 0 else 1.0) if ratio is None else ratio(length, below)
        )
        for values, value in zip(new, (w - eta * scale * u, mean, square), strict=True):
            values.append(value)
    return new


def lamb_step(weights, grads, a, q, t, eta, decay):
    return _lamb(weights, grads, a, q, t, eta, decay)


def lamb_uncorrected(weights, grads, a, q, t, eta, decay):
    return _lamb(weights, grads, a, q, t, eta, decay, corrected=False)


def lamb_norm_before_decay(weights, grads, a, q, t, eta, decay):
    return _lamb(weights, grads, a, q, t, eta, decay, before=True)


def lamb_is_adamw(weights, grads, a, q, t, eta, decay):
    return _lamb(weights, grads, a, q, t, eta, decay, ratio=lambda *_: 1.0)


def lamb_zero_weights_stay(weights, grads, a, q, t, eta, decay):
    return _lamb(
        weights, grads, a, q, t, eta, decay, ratio=lambda above, below: above / below if below else 0.0
    )


def lamb_corrects_by_the_last_step(weights, grads, a, q, t, eta, decay):
    return _lamb(weights, grads, a, q, max(t - 1, 1), eta, decay)


# -- 5 --------------------------------------------------------------------------------------------------------------


def what_it_buys(B1, S1, B2, S2, b, K):
    E_min = (S1 - S2) / (1 / B1 - 1 / B2)
    S_min = S1 - E_min / B1
    speedup = (S_min + E_min / b) / (S_min + E_min / (K * b))
    return S_min, E_min / S_min, speedup, speedup / K


def buys_perfectly(B1, S1, B2, S2, b, K):
    S_min, B_crit, _, _ = what_it_buys(B1, S1, B2, S2, b, K)
    return S_min, B_crit, float(K), 1.0


def buys_in_examples(B1, S1, B2, S2, b, K):
    S_min, B_crit, speedup, efficiency = what_it_buys(B1, S1, B2, S2, b, K)
    return S_min, B_crit * S_min, speedup, efficiency


def buys_with_the_last_as_least(B1, S1, B2, S2, b, K):
    return S2, (S1 / S2 - 1) * B1, (1 + B1 / b) / (1 + B1 / (K * b)), 1 / K


def buys_efficiency_times_k(B1, S1, B2, S2, b, K):
    S_min, B_crit, speedup, _ = what_it_buys(B1, S1, B2, S2, b, K)
    return S_min, B_crit, speedup, speedup * K


# -- 6 --------------------------------------------------------------------------------------------------------------


def _table(S_min, B_crit, b, per_example_s, allreduce_s, price, K_max, alone_pays=False, per_worker=True):
    for K in range(1, K_max + 1):
        step = b * per_example_s + (allreduce_s if K > 1 or alone_pays else 0.0)
        seconds = S_min * (1 + B_crit / (K * b)) * step
        yield K, seconds, price * (K if per_worker else 1) * seconds


def _best(rows, deadline_s, by=2):
    return min((r for r in rows if r[1] <= deadline_s), key=lambda r: r[by], default=(None, None, None))


def cheapest(S_min, B_crit, b, per_example_s, allreduce_s, price, deadline_s, K_max):
    return _best(_table(S_min, B_crit, b, per_example_s, allreduce_s, price, K_max), deadline_s)


def cheapest_is_fastest(S_min, B_crit, b, per_example_s, allreduce_s, price, deadline_s, K_max):
    return _best(_table(S_min, B_crit, b, per_example_s, allreduce_s, price, K_max), deadline_s, by=1)


def cheapest_alone_pays(S_min, B_crit, b, per_example_s, allreduce_s, price, deadline_s, K_max):
    return _best(
        _table(S_min, B_crit, b, per_example_s, allreduce_s, price, K_max, alone_pays=True), deadline_s
    )


def cheapest_for_one(S_min, B_crit, b, per_example_s, allreduce_s, price, deadline_s, K_max):
    return _best(
        _table(S_min, B_crit, b, per_example_s, allreduce_s, price, K_max, per_worker=False), deadline_s
    )


def cheapest_free_network(S_min, B_crit, b, per_example_s, allreduce_s, price, deadline_s, K_max):
    return _best(_table(S_min, B_crit, b, per_example_s, 0.0, price, K_max), deadline_s)


def cheapest_in_any_case(S_min, B_crit, b, per_example_s, allreduce_s, price, deadline_s, K_max):
    rows = list(_table(S_min, B_crit, b, per_example_s, allreduce_s, price, K_max))
    found = _best(rows, deadline_s)
    return min(rows, key=lambda r: r[1]) if found[0] is None else found


SOLUTIONS = {
    "10.8-1": rate_at,
    "10.8-2": large_step,
    "10.8-3": lars_step,
    "10.8-4": lamb_step,
    "10.8-5": what_it_buys,
    "10.8-6": cheapest,
}

MUTANTS = {
    "10.8-1": [
        rate_from_zero,
        rate_never_arrives,
        rate_always_linear,
        rate_goes_on_rising,
        rate_constant_warm_up,
    ],
    "10.8-2": [
        large_decay_by_everyone,
        large_uncorrected,
        large_mean_of_means,
        large_corrected_upside_down,
        large_sum_of_gradients,
        large_alone,
    ],
    "10.8-3": [
        lars_adapts_biases,
        lars_divides_by_zero,
        lars_upside_down,
        lars_forgets_the_decay_below,
        lars_one_norm_for_all,
    ],
    "10.8-4": [
        lamb_uncorrected,
        lamb_norm_before_decay,
        lamb_is_adamw,
        lamb_zero_weights_stay,
        lamb_corrects_by_the_last_step,
    ],
    "10.8-5": [buys_perfectly, buys_in_examples, buys_with_the_last_as_least, buys_efficiency_times_k],
    "10.8-6": [
        cheapest_is_fastest,
        cheapest_alone_pays,
        cheapest_for_one,
        cheapest_free_network,
        cheapest_in_any_case,
    ],
}
