"""Published scaling efficiencies and the inputs that explain them, each with where it stands.

``sources`` says for each input in which document it is; "not in the source" where it had to be taken from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, eq=False)
class Published:
    """One published efficiency.

    P parameters; itemsize: bytes of a gradient's element; b: examples per worker and step; examples_per_s: of one worker
    alone (with base > 1: of each of ``base`` workers on one host); bits_per_s: of all links of one host together; passes:
    forward and backward passes of which a step is made. published: the efficiency, a share of 1, against ``base`` workers.
    key: in references.bib. reason: what a miss means. sources: input -> where it stands.
    """

    system: str
    model: str
    K: int
    P: int
    b: int
    examples_per_s: float
    bits_per_s: float
    published: float
    key: str
    sources: Mapping[str, str]
    base: int = 1
    itemsize: int = 4
    passes: int = 1
    reason: str = ""


#: Parameters of the models: Keras Applications' table, for no source below states them.
PARAMETERS = {
    "Inception V3": 23_851_784, "ResNet-50": 25_636_712, "ResNet-101": 44_707_176, "ResNet-152": 60_419_944,
    "VGG-16": 138_357_544,
}  # fmt: skip

_COUNTED = "not in the source: keras.io/api/applications, table of available models"
_TABLE_16 = "Horovod's README of September 2017 (pull request 44 shows it), table of 16 GPUs"
_TABLE_64 = "Horovod's README of September 2017, table of 64 GPUs: 16 servers of 4, plain 40 Gbit/s"
_TCP = "the sum went through the kernel's TCP, not RDMA: the plan agrees where the link gives the share of its rate shown"


def _sources(where: str, **more: str) -> Mapping[str, str]:
    return MappingProxyType({"everything else": where, "P": _COUNTED, **more})


def _horovod() -> list[Published]:
    """Uber's Pascal servers of 4 GPUs. One worker's speed: the 16-GPU table's, whose hardware it is."""
    speed = {"Inception V3": 134.4, "ResNet-101": 119.4, "VGG-16": 130.9}
    plain = {"Inception V3": 148.8, "ResNet-101": 136.0, "VGG-16": 149.6}
    found = []
    for K, servers, efficiencies, where in (
        (512, 128, (0.90, 0.90, 0.68), "Horovod's docs/benchmarks.rst, first paragraph"),
        (128, 32, (0.90, 0.90, 0.79), "Horovod's docs/benchmarks.md of October 2017, first paragraph"),
    ):
        for (model, rate), efficiency in zip(speed.items(), efficiencies, strict=True):
            sources = _sources(
                f"{where}: {servers} servers of 4, RoCE at 25 Gbit/s", examples_per_s=_TABLE_16, b=_TABLE_16
            )
            found.append(
                Published("Horovod, RDMA 25 Gbit/s", model, K, PARAMETERS[model], 64, rate, 25e9, efficiency,
                          "horovod2018", sources)
            )  # fmt: skip
    for system, total, reason in (
        ("Horovod, RDMA 25 Gbit/s", (2022.6, 1746.2, 1787.4), ""),
        ("Horovod, TCP 25 Gbit/s", (1990.7, 1685.1, 1308.7), _TCP),
    ):
        for (model, rate), sum_rate in zip(speed.items(), total, strict=True):
            found.append(
                Published(system, model, 16, PARAMETERS[model], 64, rate, 25e9, sum_rate / (16 * rate), "horovod2018",
                          _sources(_TABLE_16), reason=reason)
            )  # fmt: skip
    for (model, rate), sum_rate in zip(plain.items(), (7932.1, 7741.6, 6084.2), strict=True):
        found.append(
            Published("Horovod, TCP 40 Gbit/s", model, 64, PARAMETERS[model], 64, rate, 40e9, sum_rate / (64 * rate),
                      "horovod2018", _sources(_TABLE_64), reason=_TCP)
        )  # fmt: skip
    return found


def _goyal() -> list[Published]:
    """ResNet-50 from one server of 8 P100 to 32 of them."""
    sources = _sources(
        "Goyal et al. 2017, abstract: about 90 % from 8 to 256 GPUs, 8192 images on 256 GPUs",
        examples_per_s="not in the source: TensorFlow's benchmark page, P100, batch 32, synthetic data, 1 GPU",
        bits_per_s="50 Gbit/s Ethernet: Goyal et al. 2017, section 4, quoted from memory",
    )
    return [
        Published("Goyal et al., 50 Gbit/s", "ResNet-50", 256, PARAMETERS["ResNet-50"], 32, 195.0, 50e9, 0.90, "goyal2017",
                  sources, base=8)
    ]  # fmt: skip


def _tensorflow() -> list[Published]:
    """Instances of 8 K80 at 10 Gbit/s; a step's sum goes through parameter servers on the same instances."""
    where = "TensorFlow's benchmark page (May 2017), Amazon EC2 distributed, synthetic data"
    network = "not in the source: SINGA's benchmark page on the same instance, p2.8xlarge, 10 Gbit/s"
    found = []
    for model, b, one, eight, all64 in (
        ("Inception V3", 64, 29.7, 229, 1783),
        ("ResNet-50", 64, 52.4, 378, 2744),
        ("ResNet-152", 32, 19.4, 146, 981),
    ):
        inside = eight / (8 * one)
        reason = (
            f"{100 * (1 - inside):.0f} points are lost inside one instance ({eight} images/s on its 8 GPUs), where the plan "
            f"charges nothing, and the sum went to a few parameter servers over TCP, not around a ring"
        )
        found.append(
            Published("TensorFlow, K80, 10 Gbit/s", model, 64, PARAMETERS[model], b, one, 10e9, all64 / (64 * one),
                      "tensorflow2017", _sources(where, bits_per_s=network), reason=reason)
        )  # fmt: skip
    return found


def _bert() -> list[Published]:
    """BERT-large on 32 DGX A100; a step is made of several passes, and only the last one's gradients are sent."""
    where = "NVIDIA DeepLearningExamples, PyTorch/LanguageModeling/BERT/README.md, pre-training, multi-node scaling"
    network = "not in the source: DGX A100 user guide, 8 ports of 200 Gbit/s; from memory"
    found = []
    for model, b, passes, itemsize, one_node, speedup, reason in (
        ("BERT 128 mixed", 256, 1, 2, 4553, 30.37, ""),
        ("BERT 128 TF32", 256, 2, 4, 2486, 30.45, ""),
        ("BERT 512 mixed", 128, 4, 2, 1648, 30.13, ""),
        ("BERT 512 TF32", 128, 8, 4, 854, 24.95,
         "not the network: it would have to give the share shown, and the row above, with half the bytes, is close"),
    ):  # fmt: skip
        sources = _sources(where, bits_per_s=network, P="the same README, table of models")
        found.append(
            Published("NVIDIA, DGX A100", model, 256, 330_000_000, b, one_node / 8, 8 * 200e9, speedup / 32, "nvidia2021",
                      sources, base=8, itemsize=itemsize, passes=passes, reason=reason)
        )  # fmt: skip
    return found


ROWS: tuple[Published, ...] = (*_horovod(), *_goyal(), *_tensorflow(), *_bert())
