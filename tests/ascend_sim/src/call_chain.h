// The kernel's own lines that led to the running call, for messages about helpers that many places use.
#pragma once

#include <string>

namespace ascend_sim {

// "a.h:14, b_kernel.cpp:122", innermost first; empty when there is no debug information or no addr2line.
std::string KernelCallChain();

}  // namespace ascend_sim
