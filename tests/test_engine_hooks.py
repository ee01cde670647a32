"""What engines' hooks say in the engine's log."""

import pytest

from dsv4_npu_ops.engines import hooks


def test_words_are_said_once_whatever_their_numbers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_said", set())
    messages = ["c4 has 12 rows of 64", "c4 has 13 rows of 64", "c128 has 12 rows of 64", "c4 has 12 rows of 64"]
    for message in messages:
        hooks.say_once(message)
    assert [record.getMessage().removeprefix("dsv4_npu_ops: ") for record in caplog.records] == [
        messages[0],
        messages[2],
    ]
