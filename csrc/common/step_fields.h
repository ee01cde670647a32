// What a step can be asked for. Every output is optional; the op takes those that are wanted with their numbers.
#pragma once

#include "common/pools.h"

namespace dsv4 {

// B rows, T tokens, G entries for groups of a ratio, D elements of a RoPE row. "dense": completed groups of ratio 4 or
// 128 in batch order, then dummies. Python's names are those of dsv4_npu_ops.layout.Step.
constexpr int32_t kFieldSlots = 0;                // + pool: slots, int32, int64 or pairs; [T], of c4 and c128 dense [G]
constexpr int32_t kFieldPageTable = 6;            // + pool: int32 [B, any columns], rows at any distance
constexpr int32_t kFieldPositions = 12;           // int64 [T]: raw position of each token
constexpr int32_t kFieldGroupPositions = 13;      // int64 [G] of ratio 4, dense: position of each group's first token
constexpr int32_t kFieldGroupPositionsC128 = 14;  // the same of ratio 128
constexpr int32_t kFieldStartPos = 15;            // int32 [B]
constexpr int32_t kFieldSeqUsed = 16;             // int32 [B]
constexpr int32_t kFieldKvLens = 17;              // int32 [B]
constexpr int32_t kFieldCuSeqlens = 18;           // int32 [B + 1]
constexpr int32_t kFieldNumGroups = 19;           // int32 [2]: completed groups of ratio 4 and of ratio 128
constexpr int32_t kFieldC4Cos = 20;               // float32 [G, D]: RoPE rows of the groups of ratio 4
constexpr int32_t kFieldC4Sin = 21;
constexpr int32_t kFieldC128Cos = 22;
constexpr int32_t kFieldC128Sin = 23;
constexpr int32_t kFieldC4StateLocs = 24;    // int32 [B, columns]: slots in c4_state of start_pos - 8 + column
constexpr int32_t kFieldC128StateLocs = 25;  // int32 [B, columns]: slots in c128_state of start_pos - 128 + column
constexpr int32_t kFieldWindowLocs = 26;     // int32 [rows * block, K]: swa slots that a row's tokens attend to
// RoPE rows of the tokens' positions, float32, float16 or bfloat16 [T, D] as their tables: of the base of ratio 0, and of
// that of the compressed layers.
constexpr int32_t kFieldMainCos = 27;
constexpr int32_t kFieldMainSin = 28;
constexpr int32_t kFieldCompressCos = 29;
constexpr int32_t kFieldCompressSin = 30;
constexpr int32_t kNumStepFields = 31;
constexpr int32_t kNumTokenRope = 4;  // of them, from kFieldMainCos on

DSV4_HOST_DEVICE constexpr bool is_group_pool(int32_t pool) { return pool == kC4 || pool == kC128; }

}  // namespace dsv4
