#include "counters.h"

#include <algorithm>

#include "report.h"

namespace ascend_sim {

void Counters::KeepTime(const BlockTime& time) {
    end_cycles = time.End();
    cold_cycles = time.cold();
    cycles[0] = time.scalar();
    for (int p = 1; p < kPipes; ++p) {
        cycles[p] = time.busy(static_cast<Pipe>(p));
    }
}

void Counters::Add(const Counters& other) {
    end_cycles = std::max(end_cycles, other.end_cycles);
    cold_cycles = std::max(cold_cycles, other.cold_cycles);
    instructions += other.instructions;
    code_instructions = std::max(code_instructions, other.code_instructions);
    for (int p = 0; p < kPipes; ++p) {
        calls[p] += other.calls[p];
        elements[p] += other.elements[p];
        cycles[p] += other.cycles[p];
    }
    ub_scalar_reads += other.ub_scalar_reads;
    ub_scalar_writes += other.ub_scalar_writes;
    gm_scalar_reads += other.gm_scalar_reads;
    gm_scalar_writes += other.gm_scalar_writes;
    flags_set += other.flags_set;
    flags_waited += other.flags_waited;
    barriers += other.barriers;
    nops += other.nops;
    ub_peak_bytes = std::max(ub_peak_bytes, other.ub_peak_bytes);
}

std::string Counters::Fields() const {
    const auto number = [](const char* name, uint64_t value) {
        return Format("\"%s\": %llu", name, static_cast<unsigned long long>(value));
    };
    std::string code;
    for (const auto& [offset, spent] : code_cycles) {
        code += Format("%s\"%llu\": %.1f", code.empty() ? "" : ", ", static_cast<unsigned long long>(offset), spent);
    }
    return number("mte2_calls", calls[2]) + ", " + number("mte2_bytes", elements[2]) + ", " +
           number("mte3_calls", calls[3]) + ", " + number("mte3_bytes", elements[3]) + ", " +
           number("vector_calls", calls[1]) + ", " + number("vector_elements", elements[1]) + ", " +
           number("ub_scalar_reads", ub_scalar_reads) + ", " + number("ub_scalar_writes", ub_scalar_writes) + ", " +
           number("gm_scalar_reads", gm_scalar_reads) + ", " + number("gm_scalar_writes", gm_scalar_writes) + ", " +
           number("flags_set", flags_set) + ", " + number("flags_waited", flags_waited) + ", " +
           number("barriers", barriers) + ", " + number("nops", nops) + ", " + number("ub_peak_bytes", ub_peak_bytes) +
           ", " + number("instructions", instructions) + ", " + number("code_instructions", code_instructions) +
           Format(", \"model_cycles\": {\"end\": %.0f, \"cold\": %.0f, \"S\": %.0f, \"V\": %.0f, \"MTE2\": %.0f, "
                  "\"MTE3\": %.0f}",
                  end_cycles, cold_cycles, cycles[0], cycles[1], cycles[2], cycles[3]) +
           (code.empty() ? "" : ", \"code_cycles\": {" + code + "}");
}

double LaunchCounters::ModelUs() const {
    return model::kLaunchUs + model::kLaunchUsPerBlock * blocks +
           total.end_cycles / model::kCyclesPerUs;
}

std::string LaunchCounters::ToJson() const {
    std::string out = "{\"kernel\": " + Quote(kernel) + ", \"simulated\": true, \"blocks\": " + std::to_string(blocks) +
                      ", " + total.Fields() +
                      Format(", \"model_us\": %.3f", ModelUs());
    uint64_t most = 0;
    uint64_t least = per_block.empty() ? 0 : ~uint64_t{0};
    uint64_t idle = 0;
    for (const Counters& block : per_block) {
        most = std::max(most, block.gm_bytes());
        least = std::min(least, block.gm_bytes());
        idle += block.gm_bytes() == 0 ? 1 : 0;
    }
    out += Format(", \"balance\": {\"most_bytes\": %llu, \"least_bytes\": %llu, \"idle_blocks\": %llu}",
                  static_cast<unsigned long long>(most), static_cast<unsigned long long>(least),
                  static_cast<unsigned long long>(idle));
    out += ", \"traffic\": {";
    bool first = true;
    for (const auto& [name, bytes] : traffic) {
        out += first ? "" : ", ";
        first = false;
        out += Quote(name) + Format(": {\"read_bytes\": %llu, \"written_bytes\": %llu, \"block_bytes\": %llu, \"shared_pieces\": %llu}",
                                    static_cast<unsigned long long>(bytes.read_bytes),
                                    static_cast<unsigned long long>(bytes.written_bytes),
                                    static_cast<unsigned long long>(bytes.block_bytes),
                                    static_cast<unsigned long long>(bytes.shared_pieces));
    }
    out += "}, \"per_block\": [";
    for (size_t i = 0; i < per_block.size(); ++i) {
        out += (i == 0 ? "{" : ",\n{") + per_block[i].Fields() + "}";
    }
    return out + "]}";
}

}  // namespace ascend_sim
