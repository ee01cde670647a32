// Stand-in for the toolkit's header of the same name: the Ascend C subset of the device simulator.
// A call or a combination of types that the device does not perform does not compile here.
#pragma once

#include "ascend_sim/cast.h"
#include "ascend_sim/compare_select.h"
#include "ascend_sim/composite.h"
#include "ascend_sim/create_index.h"
#include "ascend_sim/data_copy.h"
#include "ascend_sim/duplicate.h"
#include "ascend_sim/float16.h"
#include "ascend_sim/gather.h"
#include "ascend_sim/mask.h"
#include "ascend_sim/reduce.h"
#include "ascend_sim/scalar.h"
#include "ascend_sim/sync.h"
#include "ascend_sim/tensor.h"
#include "ascend_sim/tpipe.h"
#include "ascend_sim/tiling.h"
#include "ascend_sim/types.h"
#include "ascend_sim/vector_binary.h"
#include "ascend_sim/vector_scalar.h"
#include "ascend_sim/vector_unary.h"
