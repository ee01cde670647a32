// Compress metadata: parameters. Its arithmetic is shared with verify_step and lies in common/.
#pragma once

#include "common/step_outputs.h"

struct CompressMetadataParams {
    StepRowsParams rows;
    StepMetadataParams metadata;
};
