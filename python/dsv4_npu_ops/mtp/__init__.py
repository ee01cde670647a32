"""A DeepSeek-V4 forward with MTP drafting that keeps its caches in the paged pools."""
