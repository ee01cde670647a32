// Launches that have run, and the lock that keeps them one at a time.
#pragma once

#include <mutex>
#include <vector>

#include "counters.h"

namespace ascend_sim {

std::vector<LaunchCounters>& Launches();
std::mutex& SimulatorMutex();

}  // namespace ascend_sim
