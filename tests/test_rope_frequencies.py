"""RoPE frequencies: against plain Python, transformers and the values that engines got wrong."""

import cmath
import types

import pytest
import torch
from reference import rope as oracle

import dsv4_npu_ops

YARN = dict(factor=16, original_max_position_embeddings=65536, beta_fast=32, beta_slow=1)
FLAT = dict(rope_theta=10000.0, compress_rope_theta=160000.0, qk_rope_head_dim=64)
CONFIG = FLAT | dict(rope_scaling=YARN | dict(type="yarn"))


def measured_frequencies(config, ratio):
    """Radians per position, read off the row of position 1."""
    return [cmath.phase(value) for value in dsv4_npu_ops.build_freqs_cis(config, ratio, 2)[1].tolist()]


@pytest.mark.parametrize("ratio", [0, 4, 128])
@pytest.mark.parametrize("rope_dim", [2, 8, 64, 96])
def test_frequencies_equal_the_oracle(ratio, rope_dim):
    config = CONFIG | dict(qk_rope_head_dim=rope_dim)
    want = (
        oracle.frequencies(10000, rope_dim) if ratio == 0 else oracle.frequencies(160000, rope_dim, (16, 65536, 32, 1))
    )
    freqs = dsv4_npu_ops.build_freqs_cis(config, ratio, 300)
    assert freqs.shape == (300, rope_dim // 2) and freqs.dtype == torch.complex64
    for position in (0, 1, 7, 299):
        exact = torch.tensor([cmath.rect(1, position * frequency) for frequency in want], dtype=torch.complex128)
        torch.testing.assert_close(freqs[position].to(torch.complex128), exact, rtol=0, atol=1e-4)


def test_ratio_0_has_no_yarn_and_the_compressed_ratios_have():
    # Same base on both, so that what differs is YaRN alone.
    config = CONFIG | dict(compress_rope_theta=10000.0)
    plain, scaled = measured_frequencies(config, 0), measured_frequencies(config, 4)
    scale = [b / a for a, b in zip(plain, scaled, strict=True)]
    assert plain == pytest.approx([10000 ** (-pair / 32) for pair in range(32)], rel=1e-6)
    assert scale[:21] == [1.0] * 21
    assert scale[21] == pytest.approx(0.9279, abs=5e-5)
    assert scale[31] == pytest.approx(0.2067, abs=5e-5)
    assert scaled == measured_frequencies(config, 128)


@pytest.mark.parametrize("ratio", [0, 4, 128])
@pytest.mark.parametrize("attention_factor", [None, 1.27726])
def test_amplitude_is_one(ratio, attention_factor):
    config = FLAT | dict(rope_scaling=YARN | dict(type="yarn", attention_factor=attention_factor, mscale=1.0))
    freqs = dsv4_npu_ops.build_freqs_cis(config, ratio, 5000)
    assert torch.equal(freqs[0].real, torch.ones(32)) and torch.equal(freqs[0].imag, torch.zeros(32))
    squares = freqs.real.double() ** 2 + freqs.imag.double() ** 2
    torch.testing.assert_close(squares, torch.ones_like(squares), rtol=0, atol=3e-7)


def test_all_config_forms_agree():
    transformers = pytest.importorskip("transformers")
    nested = dict(
        main=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.125),
        compress=YARN | dict(rope_type="yarn", rope_theta=160000.0, partial_rotary_factor=0.125),
    )
    forms = [
        CONFIG,
        types.SimpleNamespace(**CONFIG),
        FLAT | YARN,
        FLAT | dict(rope_parameters=YARN | dict(rope_type="yarn")),
        FLAT | dict(rope_scaling=YARN),
        FLAT | dict(rope_scaling=YARN | dict(type="yarn", factor=None), max_position_embeddings=16 * 65536),
        FLAT | dict(rope_scaling=dict(type="yarn", factor=16, original_max_position_embeddings=65536)),
        dict(
            rope_parameters=YARN | dict(rope_type="yarn", rope_theta=10000.0),
            compress_rope_theta=160000,
            head_dim=512,
            partial_rotary_factor=0.125,
        ),
        dict(rope_parameters=nested, head_dim=512),
        transformers.DeepseekV4Config(num_hidden_layers=2, rope_parameters=nested),
        transformers.DeepseekV4Config(num_hidden_layers=2, rope_parameters=YARN | dict(rope_type="yarn")),
        transformers.DeepseekV4Config(num_hidden_layers=2, rope_scaling=YARN | dict(type="yarn")),
    ]
    for ratio in (0, 4, 128):
        want = dsv4_npu_ops.build_freqs_cis(CONFIG, ratio, 50)
        for form in forms:
            assert torch.equal(dsv4_npu_ops.build_freqs_cis(form, ratio, 50), want), form


def test_without_scaling_only_the_base_differs():
    freqs = dsv4_npu_ops.build_freqs_cis(FLAT, 4, 50)
    assert torch.equal(freqs, dsv4_npu_ops.build_freqs_cis(FLAT | dict(rope_theta=160000.0), 0, 50))
    unscaled = FLAT | dict(rope_scaling=YARN | dict(rope_type="default"))
    assert torch.equal(freqs, dsv4_npu_ops.build_freqs_cis(unscaled, 4, 50))


@pytest.mark.parametrize("head_dim, fraction", [(512, 0.125), (64, 0.25), (100, 0.3), (32, 1.0)])
@pytest.mark.parametrize(
    "scaling",
    [None, dict(rope_type="yarn") | YARN, dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=512)],
)
def test_cos_and_sin_equal_transformers_to_the_last_bit(head_dim, fraction, scaling):
    pytest.importorskip("transformers")
    from transformers import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4RotaryEmbedding

    config = DeepseekV4Config(
        num_hidden_layers=2, head_dim=head_dim, partial_rotary_factor=fraction, rope_parameters=scaling
    )
    rotary = DeepseekV4RotaryEmbedding(config)
    max_pos = 1 << 17
    generator = torch.Generator().manual_seed(0)
    for ratio, label in ((0, "main"), (4, "compress"), (128, "compress")):
        freqs = dsv4_npu_ops.build_freqs_cis(config, ratio, max_pos)
        for shape in ((1, 1), (1, 5), (1, 128), (3, 700)):
            positions = torch.randint(0, max_pos, shape, generator=generator)
            cos, sin = rotary(torch.zeros(1), positions, layer_type=label)
            assert torch.equal(freqs[positions].real, cos)
            assert torch.equal(freqs[positions].imag, sin)


BAD_ARGUMENTS = [
    (dict(ratio=8), "ratio is 8, expected one of (0, 4, 128)"),
    (dict(max_pos=0), "max_pos is 0, expected 1 to 16777216"),
    (dict(max_pos=(1 << 24) + 1), "max_pos is 16777217, expected 1 to 16777216"),
    (dict(config=dict(qk_rope_head_dim=64)), "compress_rope_theta is None, expected a number above 1"),
    (dict(config=dict(qk_rope_head_dim=64), ratio=0), "rope_theta is None, expected a number above 1"),
    (dict(config=FLAT | dict(compress_rope_theta=1)), "compress_rope_theta is 1, expected a number above 1"),
    (dict(config=FLAT | dict(qk_rope_head_dim=63)), "qk_rope_head_dim is 63, expected a positive even number"),
    (dict(config=dict(rope_theta=10.0)), "qk_rope_head_dim is None, expected a positive even number"),
    (dict(config=FLAT | dict(rope_scaling=dict(type="linear"))), "rope_type is 'linear', expected 'default' or 'yarn'"),
    (dict(config=FLAT | dict(rope_scaling=dict(type="yarn"))), "factor of YaRN is None, expected a number above 0"),
    (
        dict(config=FLAT | dict(factor=16)),
        "original_max_position_embeddings of YaRN is None, expected a number above 0",
    ),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
def test_bad_arguments(bad, message):
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.build_freqs_cis(**(dict(config=CONFIG, ratio=4, max_pos=8) | bad))
    assert str(error.value) == f"build_freqs_cis: {message}"
