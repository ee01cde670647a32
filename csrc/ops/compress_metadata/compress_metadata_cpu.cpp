#include "cpu/step_metadata_loops.h"
#include "ops/compress_metadata/compress_metadata.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "compress_metadata";

void run(const CompressMetadataParams& p, const StepInputs& inputs, const MetadataTables& tables,
         const MetadataTensors& out) {
    const cpu::ScannedStep step = cpu::scan_step(kOp, p.rows, inputs);
    cpu::check_metadata_capacity(kOp, step, p.metadata);
    cpu::write_step_metadata(step, p.metadata, tables, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_compress_metadata<&run>(m); }

}  // namespace dsv4
