"""Names of the MTP layer's weights: in checkpoints, in modules, in quantisation descriptions.

One table serves every direction. A checkpoint name is a prefix (``mtp.0`` in DeepSeek's own files, or the layer behind
the last one of the target, ``model.layers.<num_hidden_layers>``), a place in the layer, and a suffix: the parameter of
that place. Suffixes are matched at the end of a name and places by whole parts, the longest first, so that ``.scale``
in ``w1.scale_bias`` or in ``hc_attn_scale`` means nothing.

Source: docs/spec.md, weights. The names are those of DeepSeek-V4's published checkpoints, of ModelSlim's exports
(vllm-project/vllm-ascend, deepseek_v4/mtp.py) and of sgl-project/sglang's deepseek_v4_nextn.py.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class NameForm(Enum):
    """How a checkpoint writes a name."""

    DEEPSEEK = "deepseek"
    """``mtp.0.attn.wq_a.scale``"""
    MODELSLIM = "modelslim"
    """``mtp.0.attn.wq_a.weight_scale``; keys of ModelSlim's description file"""
    DEFAULT = "default"
    """``model.layers.<num_hidden_layers>.self_attn.wq_a.weight_scale_inv``"""


class _Place(NamedTuple):
    """One row of the table; ``*`` stands for the number of an expert.

    ``deepseek`` and ``default`` are the place in the two styles of checkpoints, ``module`` is the place in
    ``NextnLayer``. A ``leaf`` is a parameter itself, the others are modules with parameters. ``shared`` places are the
    target's, of which a checkpoint may carry a copy.
    """

    deepseek: str
    default: str
    module: str
    leaf: bool = False
    shared: bool = False


_TABLE = (
    # Beside the decoder layer.
    _Place("e_proj", "e_proj", "e_proj"),
    _Place("h_proj", "h_proj", "h_proj"),
    _Place("enorm", "enorm", "enorm"),
    _Place("hnorm", "hnorm", "hnorm"),
    _Place("norm", "shared_head.norm", "shared_head.norm"),
    _Place("hc_head_fn", "hc_head_fn", "hc_head.hc_fn", leaf=True),
    _Place("hc_head_base", "hc_head_base", "hc_head.hc_base", leaf=True),
    _Place("hc_head_scale", "hc_head_scale", "hc_head.hc_scale", leaf=True),
    _Place("emb.tok_emb", "embed_tokens", "embed_tokens", shared=True),
    _Place("head", "shared_head.head", "shared_head.head", shared=True),
    # Inside it.
    _Place("attn_norm", "input_layernorm", "decoder.input_layernorm"),
    _Place("ffn_norm", "post_attention_layernorm", "decoder.post_attention_layernorm"),
    _Place("attn.attn_sink", "self_attn.attn_sink", "decoder.self_attn.sinks", leaf=True),
    _Place("attn.wq_a", "self_attn.wq_a", "decoder.self_attn.q_a_proj"),
    _Place("attn.q_norm", "self_attn.q_norm", "decoder.self_attn.q_a_norm"),
    _Place("attn.wq_b", "self_attn.wq_b", "decoder.self_attn.q_b_proj"),
    _Place("attn.wkv", "self_attn.wkv", "decoder.self_attn.kv_proj"),
    _Place("attn.kv_norm", "self_attn.kv_norm", "decoder.self_attn.kv_norm"),
    _Place("attn.wo_a", "self_attn.wo_a", "decoder.self_attn.o_a_proj"),
    _Place("attn.wo_b", "self_attn.wo_b", "decoder.self_attn.o_b_proj"),
    _Place("ffn.gate", "mlp.gate", "decoder.mlp.gate"),
    _Place("ffn.gate.bias", "mlp.gate.e_score_correction_bias", "decoder.mlp.gate.e_score_correction_bias", leaf=True),
    _Place("ffn.shared_experts.w1", "mlp.shared_experts.gate_proj", "decoder.mlp.shared_experts.gate_proj"),
    _Place("ffn.shared_experts.w2", "mlp.shared_experts.down_proj", "decoder.mlp.shared_experts.down_proj"),
    _Place("ffn.shared_experts.w3", "mlp.shared_experts.up_proj", "decoder.mlp.shared_experts.up_proj"),
    _Place("ffn.experts.*.w1", "mlp.experts.*.gate_proj", "decoder.mlp.experts.*.gate_proj"),
    _Place("ffn.experts.*.w2", "mlp.experts.*.down_proj", "decoder.mlp.experts.*.down_proj"),
    _Place("ffn.experts.*.w3", "mlp.experts.*.up_proj", "decoder.mlp.experts.*.up_proj"),
    _Place("hc_attn_fn", "hc_attn_fn", "decoder.attn_hc.fn", leaf=True),
    _Place("hc_attn_base", "hc_attn_base", "decoder.attn_hc.base", leaf=True),
    _Place("hc_attn_scale", "hc_attn_scale", "decoder.attn_hc.scale", leaf=True),
    _Place("hc_ffn_fn", "hc_ffn_fn", "decoder.ffn_hc.fn", leaf=True),
    _Place("hc_ffn_base", "hc_ffn_base", "decoder.ffn_hc.base", leaf=True),
    _Place("hc_ffn_scale", "hc_ffn_scale", "decoder.ffn_hc.scale", leaf=True),
)

_SCALE_SUFFIX = {
    NameForm.DEEPSEEK: "scale",
    NameForm.MODELSLIM: "weight_scale",
    NameForm.DEFAULT: "weight_scale_inv",
}
QUANTISATION_PARAMETERS = (
    "weight_scale",
    "weight_offset",
    "scale_bias",
    "input_scale",
    "input_offset",
    "quant_bias",
    "deq_scale",
)
"""Parameters of a module that only its quantised form has, by their names in the module."""
# Suffix in a checkpoint -> parameter of the module. All spellings of a scale are one parameter.
_PARAMETERS = {
    "weight": "weight",
    **{name: name for name in QUANTISATION_PARAMETERS},
    **dict.fromkeys(_SCALE_SUFFIX.values(), "weight_scale"),
}
_BY_CHECKPOINT = {name: place for place in _TABLE for name in (place.deepseek, place.default)}
_BY_MODULE = {place.module: place for place in _TABLE}
# transformers keeps the routed experts of a layer in two tensors, engines fuse two matrices of an expert.
_FUSED = {
    "decoder.mlp.experts": ("gate_proj", "up_proj", "down_proj"),
    "decoder.mlp.experts.gate_up_proj": ("gate_proj", "up_proj"),
    "decoder.mlp.experts.down_proj": ("down_proj",),
    "decoder.mlp.shared_experts.gate_up_proj": ("gate_proj", "up_proj"),
}


class _Match(NamedTuple):
    place: _Place
    expert: str
    suffix: str


def _match(name: str, table: Mapping[str, _Place]) -> _Match | None:
    """The place that is the longest beginning of ``name`` in whole parts; the rest is the suffix."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        head = ".".join(parts[:count])
        pattern = re.sub(r"\.experts\.\d+\.", ".experts.*.", head)
        place = table.get(pattern)
        if place is not None:
            number = re.search(r"\.experts\.(\d+)\.", head)
            return _Match(place, number[1] if number else "*", ".".join(parts[count:]))
    return None


class MtpNames:
    """Translates the names of one MTP layer.

    Args:
        num_hidden_layers: layers of the target, which numbers the default prefix.
        index: which MTP layer, from 0.

    Raises:
        ValueError: a negative number.

    Source: docs/spec.md, weights.
    """

    def __init__(self, num_hidden_layers: int, index: int = 0) -> None:
        for name, value in (("num_hidden_layers", num_hidden_layers), ("index", index)):
            if value < 0:
                raise ValueError(f"MtpNames: {name} is {value}, expected at least 0")
        own, default = f"mtp.{index}", f"model.layers.{num_hidden_layers + index}"
        self._prefixes = {NameForm.DEEPSEEK: own, NameForm.MODELSLIM: own, NameForm.DEFAULT: default}

    def belongs(self, name: str) -> bool:
        """Whether a checkpoint name has one of the layer's prefixes, known or not."""
        return self._place_name(name) is not None

    def is_shared(self, name: str) -> bool:
        """Whether a checkpoint name is a copy of the target's embedding or head."""
        match = self._checkpoint_match(name)
        return match is not None and match.place.shared

    def module(self, name: str) -> str | None:
        """A checkpoint name of any form as a parameter of ``NextnLayer``; None when nothing in the table matches.

        Names beside the decoder layer stay beside it (``mtp.0.norm.weight`` is ``shared_head.norm.weight``), the others
        begin with ``decoder``. Routed experts keep their numbers; scales are called ``weight_scale`` in every form.
        """
        match = self._checkpoint_match(name)
        if match is None:
            return None
        place = match.place.module.replace("*", match.expert)
        return place if match.place.leaf else f"{place}.{_PARAMETERS[match.suffix]}"

    def checkpoint(self, parameter: str, form: NameForm = NameForm.DEEPSEEK) -> str:
        """The checkpoint name of a parameter of ``NextnLayer``; the inverse of ``module``.

        Raises:
            ValueError: no place in the table has such a parameter.
        """
        match = _match(parameter, _BY_MODULE)
        if match is None or (match.suffix != "" if match.place.leaf else match.suffix not in _PARAMETERS.values()):
            raise ValueError(f"checkpoint: parameter is {parameter!r}, expected one of the MTP layer")
        style = match.place.default if form is NameForm.DEFAULT else match.place.deepseek
        place = f"{self._prefixes[form]}.{style}".replace("*", match.expert)
        if match.place.leaf:
            return place
        return f"{place}.{_SCALE_SUFFIX[form] if match.suffix == 'weight_scale' else match.suffix}"

    def quantisation_keys(
        self, module: str, form: NameForm = NameForm.MODELSLIM, num_experts: int | None = None
    ) -> list[str]:
        """The keys that describe how a module is quantised: the names of its weights in the checkpoint.

        Args:
            module: a module of ``NextnLayer``, such as ``decoder.self_attn.q_a_proj``, or a fused one
                (``decoder.mlp.experts``, ``decoder.mlp.shared_experts.gate_up_proj``), which has several keys.
            form: how the keys are written.
            num_experts: routed experts, for fused modules over all of them.

        Raises:
            ValueError: no such module, or ``num_experts`` is missing.
        """
        if module not in _FUSED:
            return [self.checkpoint(f"{module}.weight", form)]
        base = module.removesuffix(".gate_up_proj").removesuffix(".down_proj")
        if base.endswith(".shared_experts"):
            owners = [base]
        elif num_experts is None:
            raise ValueError(f"quantisation_keys: num_experts is None, expected a number for {module}")
        else:
            owners = [f"{base}.{expert}" for expert in range(num_experts)]
        return [self.checkpoint(f"{owner}.{part}.weight", form) for owner in owners for part in _FUSED[module]]

    def unmatched(self, names: list[str]) -> list[str]:
        """The names that have one of the layer's prefixes and that nothing in the table matches."""
        return [name for name in names if self.belongs(name) and self._checkpoint_match(name) is None]

    def _place_name(self, name: str) -> str | None:
        for prefix in set(self._prefixes.values()):
            if name.startswith(prefix + "."):
                return name[len(prefix) + 1 :]
        return None

    def _checkpoint_match(self, name: str) -> _Match | None:
        place_name = self._place_name(name)
        match = _match(place_name, _BY_CHECKPOINT) if place_name is not None else None
        if match is None or (match.suffix != "" if match.place.leaf else match.suffix not in _PARAMETERS):
            return None
        return match


def quantisation_scheme(description: Mapping[str, object], keys: list[str]) -> str:
    """The scheme that a quantisation description gives all of ``keys``, such as ``W8A8_DYNAMIC`` or ``FLOAT``.

    Raises:
        ValueError: a key is missing (ModelSlim leaves the MTP layer out unless asked), or the keys differ.

    Source: docs/spec.md, weights.
    """
    missing = [key for key in keys if key not in description]
    if missing:
        raise ValueError(f"quantisation_scheme: description lacks {missing[0]!r} ({len(missing)} of {len(keys)} keys)")
    schemes = {str(description[key]) for key in keys}
    if len(schemes) != 1:
        raise ValueError(
            f"quantisation_scheme: {keys[0]!r} and its parts have {sorted(schemes)}, expected one scheme for all"
        )
    return schemes.pop()
