// The sticky error words of a device: one lane of 8 int32 for each block, all 0 while nothing went wrong. A block that
// meets a bad value writes its lane once; device_errors() reads the lanes when asked (docs/spec.md, errors).
#pragma once

#include "common/portable.h"

namespace dsv4 {

constexpr int32_t kErrorLanes = 64;     // no launch has more blocks
constexpr int32_t kErrorLaneWords = 8;  // 32 bytes

// Words of a lane.
constexpr int32_t kErrorOp = 0;     // which op, never 0
constexpr int32_t kErrorCode = 1;   // what is wrong; the op's index header names the codes
constexpr int32_t kErrorIndex = 2;  // which entry of the argument
constexpr int32_t kErrorValue = 3;  // the low half of the value

// Values of kErrorOp.
constexpr int32_t kErrorOpRopeGather = 1;
constexpr int32_t kErrorOpStep = 4;
constexpr int32_t kErrorOpWriteTables = 5;
constexpr int32_t kErrorOpCompressorMetadata = 6;
constexpr int32_t kErrorOpReserveExtend = 7;
constexpr int32_t kErrorOpReleasePages = 8;
constexpr int32_t kErrorOpDraftSteps = 9;
constexpr int32_t kErrorOpMapFullToSwa = 10;
constexpr int32_t kErrorOpC4SlotsFromFull = 11;
constexpr int32_t kErrorOpAdvanceStep = 12;
constexpr int32_t kErrorOpSharePages = 13;
constexpr int32_t kErrorOpExtendFromLists = 14;
constexpr int32_t kErrorOpTokenSlots = 15;

// Values of kErrorCode that several ops use.
constexpr int32_t kErrorPositionOutOfRange = 100;

}  // namespace dsv4
