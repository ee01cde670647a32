// Verify bundle: parameters. Its arithmetic is shared with verify_step and lies in common/.
#pragma once

#include "common/step_outputs.h"

struct VerifyBundleParams {
    StepRowsParams rows;
    StepSlotsParams slots;
};
