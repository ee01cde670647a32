"""vLLM-Ascend: DeepSeek-V4's bookkeeping by the ops of this package (docs/vllm_ascend.md).

vLLM calls ``register`` in every process, through the entry point ``vllm.general_plugins``.
"""

from __future__ import annotations

from importlib import metadata

from dsv4_npu_ops.engines import patch
from dsv4_npu_ops.engines.hooks import Decision, Hook, decide, instead, logger
from dsv4_npu_ops.engines.settings import Mode, mode_of, variable_of

ENGINE = "vllm_ascend"


def all_hooks() -> tuple[Hook, ...]:
    """Every function of every known version that is replaced."""
    from dsv4_npu_ops.engines.vllm_ascend import builders, compressor, connector, drafts, rope, runner, samples

    hooks = runner.HOOKS + builders.HOOKS + compressor.HOOKS + rope.HOOKS + samples.HOOKS + drafts.HOOKS
    return hooks + connector.HOOKS


def installed_version() -> str | None:
    """Version of the installed vLLM-Ascend, which is not imported; None without one."""
    try:
        return metadata.version("vllm-ascend")
    except metadata.PackageNotFoundError:
        return None


def decisions() -> list[Decision]:
    """Which hooks the installed vLLM-Ascend takes; imports its modules."""
    return decide(all_hooks(), installed_version() or "0")


def register() -> None:
    """Has functions of vLLM-Ascend replaced when their modules are imported; called by vLLM itself.

    Nothing of the engine is imported here. Without vLLM-Ascend, or when ``DSV4_NPU_OPS_VLLM_ASCEND`` is ``off``,
    nothing is done; where the model is not DeepSeek-V4, what was replaced calls the engine's own. What is not as
    expected is left as it is, with a line in the log.
    """
    mode = mode_of(ENGINE)
    if mode is Mode.OFF:
        logger.info("dsv4_npu_ops: off (%s)", variable_of(ENGINE))
        return
    version = installed_version()
    if version is None:
        return
    by_module: dict[str, list[Hook]] = {}
    for hook in all_hooks():
        by_module.setdefault(module_of(hook), []).append(hook)
    for module, hooks in by_module.items():
        patch.after_import(module, lambda hooks=hooks: _replace(hooks, version, mode))  # type: ignore[misc]
    logger.info("dsv4_npu_ops: %s", mode.value)


def module_of(hook: Hook) -> str:
    """The module that a hook's target is defined in."""
    parent = hook.target.rpartition(".")[0]
    return parent if parent.rpartition(".")[2].islower() else parent.rpartition(".")[0]


def _replace(hooks: list[Hook], version: str, mode: Mode) -> None:
    for decision in decide(hooks, version):
        if decision.refused is not None:
            logger.warning("dsv4_npu_ops: %s is vLLM-Ascend's own: %s", decision.hook.name, decision.refused)
            continue
        place = instead(decision.hook, mode)
        if place is not None:
            patch.replace(decision.hook.target, place)
