#include "ascend_sim/c_api.h"

#include <string>

#include "config.h"
#include "gm.h"
#include "launches.h"
#include "report.h"

using ascend_sim::GlobalConfig;
using ascend_sim::GlobalReport;
using Lock = std::lock_guard<std::mutex>;

extern "C" {

void ascend_sim_register_gm(void* host, uint64_t bytes, const char* name, int32_t initialised) {
    ascend_sim_register_gm_mapped(reinterpret_cast<uint64_t>(host), host, bytes, name, initialised);
}

void ascend_sim_register_gm_mapped(uint64_t device_address, void* host, uint64_t bytes, const char* name,
                                   int32_t initialised) {
    if (bytes == 0) {
        return;
    }
    const Lock lock(ascend_sim::SimulatorMutex());
    ascend_sim::RegisterGm(device_address, host, bytes, name, initialised != 0);
}

int32_t ascend_sim_unregister_gm(const void* address) {
    const Lock lock(ascend_sim::SimulatorMutex());
    return ascend_sim::UnregisterGm(reinterpret_cast<uint64_t>(address)) ? 1 : 0;
}

void ascend_sim_clear_gm(void) {
    const Lock lock(ascend_sim::SimulatorMutex());
    ascend_sim::ClearGm();
}

void ascend_sim_set_seed(uint64_t seed) { GlobalConfig().seed = seed; }

void ascend_sim_set_block_order(int32_t order) { GlobalConfig().order = static_cast<ascend_sim::BlockOrder>(order); }

void ascend_sim_set_strict(int32_t strict) { GlobalConfig().strict = strict != 0; }

void ascend_sim_set_profile(int32_t as_built) {
    ascend_sim::Config& config = GlobalConfig();
    config.strict = as_built == 0;
    config.scalar_gm_stores = config.as_built = as_built != 0;
    config.report_overflow = config.report_special_half = as_built == 0;
}

void ascend_sim_set_tiling_key(uint64_t key) { GlobalConfig().tiling_key = key; }

void ascend_sim_allow_scalar_gm_stores(int32_t allow) { GlobalConfig().scalar_gm_stores = allow != 0; }

void ascend_sim_report_overflow(int32_t report) { GlobalConfig().report_overflow = report != 0; }

void ascend_sim_report_special_half(int32_t report) { GlobalConfig().report_special_half = report != 0; }

void ascend_sim_set_max_errors(uint64_t max_errors) { GlobalConfig().max_errors = max_errors; }

void ascend_sim_set_max_calls(uint64_t max_calls) { GlobalConfig().max_calls = max_calls; }

void ascend_sim_set_memory_cold(int32_t cold) { GlobalConfig().memory_is_cold = cold != 0; }

void ascend_sim_set_instruction_table(const void* base, const uint64_t* offsets, const uint32_t* instructions,
                                      uint64_t count) {
    const Lock lock(ascend_sim::SimulatorMutex());
    ascend_sim::SetInstructionTable(reinterpret_cast<uint64_t>(base), offsets, instructions, count);
}

void ascend_sim_keep_code_times(int32_t keep) { ascend_sim::KeepCodeTimes(keep != 0); }

uint64_t ascend_sim_error_count(void) {
    const Lock lock(ascend_sim::SimulatorMutex());
    return GlobalReport().total();
}

const char* ascend_sim_errors_json(void) {
    static std::string text;
    const Lock lock(ascend_sim::SimulatorMutex());
    text = GlobalReport().ErrorsJson();
    return text.c_str();
}

const char* ascend_sim_warnings_json(void) {
    static std::string text;
    const Lock lock(ascend_sim::SimulatorMutex());
    text = GlobalReport().WarningsJson();
    return text.c_str();
}

void ascend_sim_suppress(const char* kind, const char* file, int32_t line) {
    const Lock lock(ascend_sim::SimulatorMutex());
    GlobalReport().Suppress(ascend_sim::Suppression{kind, file, line});
}

void ascend_sim_clear_suppressions(void) {
    const Lock lock(ascend_sim::SimulatorMutex());
    GlobalReport().ClearSuppressions();
}

void ascend_sim_clear_errors(void) {
    const Lock lock(ascend_sim::SimulatorMutex());
    GlobalReport().Clear();
}

const char* ascend_sim_counters_json(void) {
    static std::string text;
    const Lock lock(ascend_sim::SimulatorMutex());
    text = "[";
    for (const ascend_sim::LaunchCounters& launch : ascend_sim::Launches()) {
        text += (text.size() > 1 ? ",\n" : "") + launch.ToJson();
    }
    text += "]";
    return text.c_str();
}

uint64_t ascend_sim_launch_count(void) {
    const Lock lock(ascend_sim::SimulatorMutex());
    return ascend_sim::Launches().size();
}

void ascend_sim_clear_counters(void) {
    const Lock lock(ascend_sim::SimulatorMutex());
    ascend_sim::Launches().clear();
}

void ascend_sim_reset(void) {
    ascend_sim_clear_errors();
    ascend_sim_clear_counters();
}

}  // extern "C"
