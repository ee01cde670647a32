"""Names of the MTP layer's weights: case 27 of the contract, both directions, and what is reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weights.layer_names import EXPERTS, MATRICES, OTHERS

from dsv4_npu_ops.weights import MtpNames, NameForm, quantisation_scheme

NAMES = MtpNames(num_hidden_layers=43)


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("mtp.0.e_proj.weight", "e_proj.weight"),
        ("mtp.0.hnorm.weight", "hnorm.weight"),
        ("mtp.0.norm.weight", "shared_head.norm.weight"),
        ("mtp.0.attn.wq_a.weight", "decoder.self_attn.q_a_proj.weight"),
        ("mtp.0.ffn.experts.3.w1.scale", "decoder.mlp.experts.3.gate_proj.weight_scale"),
        # A longer place wins over a shorter one and over a suffix.
        ("mtp.0.attn_norm.weight", "decoder.input_layernorm.weight"),
        ("mtp.0.ffn.gate.weight", "decoder.mlp.gate.weight"),
        ("mtp.0.ffn.gate.bias", "decoder.mlp.gate.e_score_correction_bias"),
        # ".scale" in the middle, and at the end of a place's own name.
        ("mtp.0.ffn.experts.3.w1.scale_bias", "decoder.mlp.experts.3.gate_proj.scale_bias"),
        ("mtp.0.hc_attn_scale", "decoder.attn_hc.scale"),
        ("mtp.0.hc_head_scale", "hc_head.hc_scale"),
        ("mtp.0.e_proj.scale", "e_proj.weight_scale"),
        # ModelSlim's suffixes.
        ("mtp.0.attn.wq_a.weight_scale", "decoder.self_attn.q_a_proj.weight_scale"),
        ("mtp.0.attn.wq_a.weight_offset", "decoder.self_attn.q_a_proj.weight_offset"),
        # The default prefix, in either style.
        ("model.layers.43.self_attn.wq_a.weight_scale_inv", "decoder.self_attn.q_a_proj.weight_scale"),
        ("model.layers.43.attn.wq_a.weight", "decoder.self_attn.q_a_proj.weight"),
        ("model.layers.43.shared_head.norm.weight", "shared_head.norm.weight"),
        ("model.layers.43.mlp.experts.12.down_proj.weight", "decoder.mlp.experts.12.down_proj.weight"),
        ("model.layers.43.mlp.gate.e_score_correction_bias", "decoder.mlp.gate.e_score_correction_bias"),
    ],
)
def test_a_name_means(name, parameter):
    assert NAMES.module(name) == parameter
    assert NAMES.unmatched([name]) == []


@pytest.mark.parametrize(
    "name",
    [
        "mtp.0.attn.wq_c.weight",
        "mtp.0.attn.wq_a",
        "mtp.0.attn.wq_a.weight.scale",
        "mtp.0.attn.wq_a_norm.weight",
        "mtp.0.scale",
        "mtp.0.hc_attn_scale.weight",
        "mtp.0.ffn.experts.w1.weight",
        "mtp.0.ffn.experts.x.w1.weight",
        "mtp.0.ffn.experts.3.w4.weight",
        "mtp.0.ffn.gate.tid2eid",
        "mtp.0.norm_f.weight",
    ],
)
def test_a_name_that_nothing_matches_is_reported(name):
    assert NAMES.module(name) is None
    assert NAMES.unmatched(["mtp.0.e_proj.weight", name]) == [name]


@pytest.mark.parametrize(
    "name", ["norm.weight", "layers.43.attn.wq_a.weight", "mtp.1.e_proj.weight", "mtp.01.e_proj.weight",
             "model.layers.4.self_attn.wq_a.weight", "model.layers.431.self_attn.wq_a.weight", "mtp.0"]
)  # fmt: skip
def test_a_name_of_another_layer_is_neither_matched_nor_reported(name):
    assert NAMES.module(name) is None
    assert not NAMES.belongs(name)
    assert NAMES.unmatched([name]) == []


def test_copies_of_the_targets_weights_are_recognised():
    for name in ("mtp.0.emb.tok_emb.weight", "mtp.0.head.weight", "model.layers.43.shared_head.head.weight"):
        assert NAMES.is_shared(name) and not NAMES.unmatched([name])
    assert not NAMES.is_shared("mtp.0.norm.weight")


def test_both_directions_agree_for_every_name_and_form():
    names = [f"mtp.0.{matrix}.{suffix}" for matrix in MATRICES for suffix in ("weight", "scale")]
    names += [f"mtp.0.{other}" for other in OTHERS]
    parameters = [NAMES.module(name) for name in names]
    assert None not in parameters and len(set(parameters)) == len(names)
    assert [NAMES.checkpoint(parameter) for parameter in parameters] == names
    for form in NameForm:
        written = [NAMES.checkpoint(parameter, form) for parameter in parameters]
        assert [NAMES.module(name) for name in written] == parameters
        assert len(set(written)) == len(written)


def test_forms_write_scales_their_own_way():
    parameter = "decoder.mlp.experts.7.up_proj.weight_scale"
    assert NAMES.checkpoint(parameter) == "mtp.0.ffn.experts.7.w3.scale"
    assert NAMES.checkpoint(parameter, NameForm.MODELSLIM) == "mtp.0.ffn.experts.7.w3.weight_scale"
    assert NAMES.checkpoint(parameter, NameForm.DEFAULT) == "model.layers.43.mlp.experts.7.up_proj.weight_scale_inv"


@given(st.integers(0, 200), st.integers(0, 3), st.integers(0, 999))
def test_layer_and_expert_numbers_survive(layers, index, expert):
    names = MtpNames(layers, index)
    parameter = f"decoder.mlp.experts.{expert}.gate_proj.weight"
    assert names.checkpoint(parameter) == f"mtp.{index}.ffn.experts.{expert}.w1.weight"
    default = f"model.layers.{layers + index}.mlp.experts.{expert}.gate_proj.weight"
    assert names.checkpoint(parameter, NameForm.DEFAULT) == default
    assert names.module(default) == parameter


@pytest.mark.parametrize("parameter", ["decoder.self_attn.q_a_proj", "decoder.attn_hc.scale.weight", "norm.weight",
                                       "decoder.self_attn.q_a_proj.scale", ""])  # fmt: skip
def test_an_unknown_parameter_has_no_checkpoint_name(parameter):
    with pytest.raises(ValueError, match=r"checkpoint: parameter is .*, expected one of the MTP layer"):
        NAMES.checkpoint(parameter)


def test_quantisation_keys_of_plain_and_fused_modules():
    assert NAMES.quantisation_keys("decoder.self_attn.q_a_proj") == ["mtp.0.attn.wq_a.weight"]
    assert NAMES.quantisation_keys("decoder.self_attn.q_a_proj", NameForm.DEFAULT) == [
        "model.layers.43.self_attn.wq_a.weight"
    ]
    assert NAMES.quantisation_keys("decoder.mlp.shared_experts.gate_up_proj") == [
        "mtp.0.ffn.shared_experts.w1.weight",
        "mtp.0.ffn.shared_experts.w3.weight",
    ]
    keys = NAMES.quantisation_keys("decoder.mlp.experts", num_experts=EXPERTS)
    assert sorted(keys) == sorted(f"mtp.0.{matrix}.weight" for matrix in MATRICES if ".experts." in matrix)
    assert NAMES.quantisation_keys("decoder.mlp.experts.down_proj", num_experts=2) == [
        "mtp.0.ffn.experts.0.w2.weight",
        "mtp.0.ffn.experts.1.w2.weight",
    ]
    with pytest.raises(ValueError, match="num_experts is None"):
        NAMES.quantisation_keys("decoder.mlp.experts")
    with pytest.raises(ValueError, match="expected one of the MTP layer"):
        NAMES.quantisation_keys("decoder.self_attn.wq_a")


def test_a_scheme_is_the_one_that_all_keys_have():
    description = {"mtp.0.ffn.shared_experts.w1.weight": "W8A8_DYNAMIC", "mtp.0.ffn.shared_experts.w3.weight": "FLOAT"}
    keys = NAMES.quantisation_keys("decoder.mlp.shared_experts.gate_up_proj")
    assert quantisation_scheme(description, keys[:1]) == "W8A8_DYNAMIC"
    with pytest.raises(ValueError, match=r"\['FLOAT', 'W8A8_DYNAMIC'\], expected one scheme"):
        quantisation_scheme(description, keys)
    with pytest.raises(ValueError, match=r"description lacks 'mtp\.0\.attn\.wkv\.weight' \(1 of 1 keys\)"):
        quantisation_scheme(description, NAMES.quantisation_keys("decoder.self_attn.kv_proj"))
