// The toolkit's other name for the same interface.
#pragma once

#include "kernel_operator.h"
