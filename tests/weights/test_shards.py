"""Reading the MTP layer from shards with the real names, in every format that checkpoints store."""

import json
import math
import sys

import pytest
import torch
from mtp.small_models import build, prompts_of
from safetensors.torch import save_file
from weights.layer_names import EXPERTS, MATRICES, OTHERS

from dsv4_npu_ops.mtp.checkpoint import load_checkpoint
from dsv4_npu_ops.mtp.nextn import NextnLayer
from dsv4_npu_ops.weights import MtpNames, float_state_dict, read_mtp_weights, split_experts

LAYERS = 43
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def write_folder(folder, tensors, shards=3, index_name="model.safetensors.index.json"):
    """Spreads tensors over shards by turns, with an index."""
    files = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    weight_map = {name: files[i % shards] for i, name in enumerate(tensors)}
    for file in files:
        save_file({name: tensor for name, tensor in tensors.items() if weight_map[name] == file}, folder / file)
    (folder / index_name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": LAYERS}))


def numbered(names):
    """A different small tensor for every name."""
    return {name: torch.full((2, 3), float(i)) for i, name in enumerate(names, start=1)}


def test_every_real_name_is_read_from_its_shard(tmp_path):
    own = [f"mtp.0.{matrix}.{suffix}" for matrix in MATRICES for suffix in ("weight", "scale")]
    own += [f"mtp.0.{other}" for other in OTHERS]
    foreign = ["embed.weight", "norm.weight", "layers.0.attn.wq_a.weight", "mtp.1.e_proj.weight"]
    stored = numbered([*own, *foreign, "mtp.0.emb.tok_emb.weight", "mtp.0.head.weight", "mtp.0.rotary.inv_freq"])
    write_folder(tmp_path, stored)
    weights = read_mtp_weights(tmp_path)
    assert len(weights.tensors) == len(own)
    assert torch.equal(weights.tensors["shared_head.norm.weight"], stored["mtp.0.norm.weight"])
    assert torch.equal(
        weights.tensors["decoder.mlp.experts.3.gate_proj.weight_scale"], stored["mtp.0.ffn.experts.3.w1.scale"]
    )
    values = sorted(tensor[0, 0].item() for tensor in weights.tensors.values())
    assert values == [float(i) for i in range(1, len(own) + 1)]
    assert weights.shared == ["mtp.0.emb.tok_emb.weight", "mtp.0.head.weight"]
    assert weights.unmatched == ["mtp.0.rotary.inv_freq"]


def test_modelslim_and_default_names_are_read(tmp_path):
    names = [f"mtp.0.attn.wq_a.{suffix}" for suffix in ("weight", "weight_scale", "weight_offset")]
    names += [f"model.layers.{layer}.self_attn.wkv.weight" for layer in (LAYERS, LAYERS - 1)]
    write_folder(tmp_path, numbered(names), index_name="quant_model_weights.safetensors.index.json")
    assert sorted(read_mtp_weights(tmp_path).tensors) == [
        "decoder.self_attn.kv_proj.weight",
        "decoder.self_attn.q_a_proj.weight",
        "decoder.self_attn.q_a_proj.weight_offset",
        "decoder.self_attn.q_a_proj.weight_scale",
    ]


def test_what_is_wrong_with_a_folder_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a folder with safetensors files"):
        read_mtp_weights(tmp_path, LAYERS)
    write_folder(tmp_path, numbered(["norm.weight", "mtp.1.norm.weight"]))
    with pytest.raises(ValueError, match=r"weights of MTP layer 0, got .* which has none"):
        read_mtp_weights(tmp_path)
    write_folder(tmp_path, numbered(["mtp.0.attn.wkv.weight", f"model.layers.{LAYERS}.self_attn.wkv.weight"]))
    with pytest.raises(ValueError, match=r"'mtp\.0\.attn\.wkv\.weight' and .* are both decoder\.self_attn\.kv_proj"):
        read_mtp_weights(tmp_path)
    write_folder(tmp_path, numbered(["mtp.0.e_proj.weight", "mtp.0.h_proj.weight"]), shards=2)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    index["weight_map"]["mtp.0.h_proj.weight"] = "model-00001-of-00002.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"expected tensor 'mtp\.0\.h_proj\.weight', which the index places there"):
        read_mtp_weights(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="expected shard model-00001-of-00002"):
        read_mtp_weights(tmp_path)
    (tmp_path / "other.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match="expected one"):
        read_mtp_weights(tmp_path)


def by_hand(weight, scale_of):
    """A matrix times its scale, element by element."""
    return [[value * scale_of(i, j) for j, value in enumerate(row)] for i, row in enumerate(weight)]


def test_fp8_blocks(tmp_path):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(130, 257, generator=generator).to(torch.float8_e4m3fn)
    scale = torch.tensor([[0.5, 1.0, 4.0], [2.0, 0.25, 8.0]]).to(torch.float8_e8m0fnu)
    write_folder(tmp_path, {"mtp.0.e_proj.weight": weight, "mtp.0.e_proj.scale": scale})
    state = float_state_dict(read_mtp_weights(tmp_path).tensors)
    assert list(state) == ["e_proj.weight"]
    expected = by_hand(weight.float().tolist(), lambda i, j: scale.float()[i // 128, j // 128].item())
    assert state["e_proj.weight"].tolist() == expected


def test_fp4_groups_of_routed_experts(tmp_path):
    generator = torch.Generator().manual_seed(2)
    stored, expected = {}, {}
    for expert in range(EXPERTS):
        for part in ("w1", "w2", "w3"):
            packed = torch.randint(0, 256, (4, 32), generator=generator, dtype=torch.uint8)
            scale = 2.0 ** torch.randint(-3, 4, (4, 2), generator=generator)
            name = f"mtp.0.ffn.experts.{expert}.{part}"
            stored |= {f"{name}.weight": packed.view(torch.int8), f"{name}.scale": scale.to(torch.float8_e8m0fnu)}
            codes = [[code for byte in row for code in (byte % 16, byte // 16)] for row in packed.tolist()]
            values = [[math.copysign(E2M1[code % 8], -1 if code >= 8 else 1) for code in row] for row in codes]
            expected[expert, part] = by_hand(values, lambda i, j, scale=scale: scale[i, j // 32].item())
    write_folder(tmp_path, stored)
    state = float_state_dict(read_mtp_weights(tmp_path).tensors)
    assert state["decoder.mlp.experts.gate_up_proj"].tolist() == [
        expected[expert, "w1"] + expected[expert, "w3"] for expert in range(EXPERTS)
    ]
    assert state["decoder.mlp.experts.down_proj"].tolist() == [expected[expert, "w2"] for expert in range(EXPERTS)]


def test_int8_rows():
    weight = torch.tensor([[-128, 0, 127], [1, 2, 3]], dtype=torch.int8)
    scale, offset = torch.tensor([[0.5], [2.0]]), torch.tensor([[1.0], [-1.0]])
    base = "decoder.self_attn.q_a_proj"
    tensors = {f"{base}.weight": weight, f"{base}.weight_scale": scale, f"{base}.weight_offset": offset}
    assert float_state_dict(tensors) == {
        f"{base}.weight": pytest.approx(torch.tensor([[-64.5, -0.5, 63.0], [4, 6, 8]]))
    }


def test_a_parameter_beside_a_weight_is_kept():
    tensors = {"decoder.mlp.gate.weight": torch.ones(2, 2), "decoder.mlp.gate.e_score_correction_bias": torch.ones(2),
               "decoder.attn_hc.scale": torch.ones(3)}  # fmt: skip
    assert float_state_dict(tensors).keys() == tensors.keys()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"e_proj.weight": torch.zeros(2, 2, dtype=torch.int8)}, "expected a scale beside a weight of torch.int8"),
        (
            {"e_proj.weight": torch.zeros(2, 2).to(torch.float8_e4m3fn), "e_proj.weight_scale": torch.ones(2, 1)},
            r"expected a scale of shape \[1, 1\] for FP8 blocks, got \[2, 1\]",
        ),
        (
            {"e_proj.weight": torch.zeros(2, 2, dtype=torch.int8), "e_proj.weight_scale": torch.ones(3)},
            "expected FP8 blocks, packed FP4 groups or int8 rows",
        ),
        ({"e_proj.scale_bias": torch.zeros(2)}, "W4A8"),
        (
            {f"decoder.mlp.experts.1.{part}_proj.weight": torch.ones(1, 1) for part in ("gate", "up", "down")},
            r"decoder\.mlp\.experts\.0: expected all of its matrices",
        ),
        ({"decoder.mlp.experts.0.up_proj.weight": torch.ones(1, 1)}, r"none for \['down_proj', 'gate_proj'\]"),
    ],
)
def test_what_cannot_become_float_is_said(tensors, message):
    with pytest.raises(ValueError, match=message):
        float_state_dict(tensors)


def test_a_loaded_layer_computes_what_the_saved_one_does(tmp_path):
    """int8 shards under the real names give a layer whose weights are those that the int8 values stand for."""
    _, nextn = build(seed=5)
    matrices = [f"mtp.0.{matrix}.weight" for matrix in MATRICES]
    names = MtpNames(LAYERS)
    stored, wanted = {}, {}
    for parameter, weight in split_experts(nextn.state_dict()).items():
        name = names.checkpoint(parameter)
        if name not in matrices:
            stored[name] = weight.clone()
            wanted[parameter] = weight
            continue
        scale = weight.abs().amax(dim=1, keepdim=True) / 127
        quantised = (weight / scale).round().to(torch.int8)
        stored[name], stored[name.removesuffix("weight") + "weight_scale"] = quantised, scale
        wanted[parameter] = quantised.float() * scale
    write_folder(tmp_path, stored)
    loaded = NextnLayer(nextn.config, nextn.embed_tokens, nextn.lm_head)
    loaded.load_state_dict(float_state_dict(read_mtp_weights(tmp_path).tensors))
    state = split_experts(loaded.state_dict())
    assert state.keys() == wanted.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in wanted.items())
    tokens = torch.tensor(prompts_of([6], seed=3))
    streams = torch.randn(1, 6, nextn.config.hc_mult, nextn.config.hidden_size)
    outputs = [layer.eval()(tokens, streams, torch.arange(6)[None]) for layer in (nextn, loaded)]
    assert not torch.equal(*outputs)
    assert (outputs[0] - outputs[1]).abs().max() < 0.2 * outputs[0].abs().max()


def test_an_unknown_weight_stops_the_loading_of_a_checkpoint(tmp_path):
    write_folder(tmp_path, numbered(["mtp.0.norm.weight", "mtp.0.attn.wq_c.weight"]))
    with pytest.raises(
        ValueError, match=r"expected only weights that the MTP layer has, got mtp\.0\.attn\.wq_c\.weight"
    ):
        load_checkpoint(tmp_path)


def test_reading_without_safetensors_says_so(tmp_path, monkeypatch):
    write_folder(tmp_path, numbered([f"mtp.0.{name}" for name in OTHERS]))
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"^read_mtp_weights needs safetensors, which is not installed: pip install"):
        read_mtp_weights(tmp_path)
