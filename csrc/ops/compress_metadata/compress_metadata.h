#pragma once

#include "ops/compress_metadata/compress_metadata_index.h"
#include "torch/step_tensors.h"

namespace dsv4 {

// Checks every argument of compress_metadata.out but the values in tensors.
CompressMetadataParams check_compress_metadata(const StepInputs& inputs, const MetadataTables& tables,
                                               int64_t page_size, int64_t window, const MetadataTensors& out);

}  // namespace dsv4
