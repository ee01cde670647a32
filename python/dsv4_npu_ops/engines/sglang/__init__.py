"""SGLang on NPU: DeepSeek-V4's bookkeeping by the ops of this package (docs/sglang.md).

SGLang calls ``register`` through the entry point ``sglang.srt.plugins`` before it starts.
"""

from __future__ import annotations

from dsv4_npu_ops.engines.hooks import Decision, Hook, around, decide, logger
from dsv4_npu_ops.engines.settings import Mode, mode_of, variable_of

ENGINE = "sglang"


def all_hooks() -> tuple[Hook, ...]:
    """Every function of every known version that is replaced."""
    from dsv4_npu_ops.engines.sglang import allocator, bundle, drafts, eager, graphs, payloads, rope, table_writes

    metadata = graphs.HOOKS + eager.HOOKS + bundle.HOOKS + drafts.HOOKS + rope.HOOKS
    return metadata + allocator.HOOKS + table_writes.HOOKS + payloads.HOOKS


def decisions() -> list[Decision]:
    """Which hooks the installed SGLang takes; imports its NPU modules."""
    import sglang

    return decide(all_hooks(), sglang.__version__)


def register() -> None:
    """Registers the hooks with SGLang; called by SGLang itself.

    Does nothing where there is no NPU, or when ``DSV4_NPU_OPS_SGLANG`` is ``off``. What is not as expected is left as
    it is, with a line in the log.
    """
    mode = mode_of(ENGINE)
    if mode is Mode.OFF:
        logger.info("dsv4_npu_ops: off (%s)", variable_of(ENGINE))
        return
    from sglang.srt.utils import is_npu

    if not is_npu():
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from dsv4_npu_ops.engines.sglang.versions import faults_mended

    for decision in decisions():
        if decision.refused is not None:
            logger.warning("dsv4_npu_ops: %s is SGLang's own: %s", decision.hook.name, decision.refused)
            continue
        hook = around(decision.hook, mode)
        if hook is not None:
            HookRegistry.register(decision.hook.target, hook, HookType.AROUND)
    for fault in faults_mended() if mode is Mode.ON else ():
        logger.warning("dsv4_npu_ops: %s", fault)
    logger.info("dsv4_npu_ops: %s", mode.value)
