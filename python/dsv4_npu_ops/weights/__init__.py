"""The MTP layer's weights in public checkpoints: names, shards, quantised values.

``MtpNames`` translates names in both directions, ``read_mtp_weights`` finds the tensors in a checkpoint folder, and
``float_state_dict`` turns what it found into the state of ``dsv4_npu_ops.mtp.NextnLayer``. Reading needs safetensors
(extra ``mtp``); names need nothing.
"""

from dsv4_npu_ops.weights.float_state import float_state_dict, split_experts
from dsv4_npu_ops.weights.names import MtpNames, NameForm, quantisation_scheme
from dsv4_npu_ops.weights.shards import MtpWeights, read_mtp_weights

__all__ = [
    "MtpNames",
    "MtpWeights",
    "NameForm",
    "float_state_dict",
    "quantisation_scheme",
    "read_mtp_weights",
    "split_experts",
]
