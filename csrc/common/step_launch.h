// What a device keeps of the rows of a launch in UB. A core keeps a few numbers of every row, so that the number of
// rows is bounded.
#pragma once

#include "common/launch_plan.h"
#include "common/step_rows.h"

namespace dsv4 {

constexpr int64_t kMaxDeviceRows = 4096;
constexpr int64_t kRowArrays = 6;                  // int32 numbers kept of a row
constexpr int64_t kTileEntries = 2048;             // entries of a one-dimensional output that are made at a time
constexpr int64_t kPageTileEntries = 1024;         // entries of a page table; each may take a 32-byte block on its way
constexpr int64_t kNothingEntries = 8192;          // entries of a page table that name nothing, stored at a time
constexpr int64_t kChunkRows = 512;                // rows whose inputs are read at a time
constexpr int64_t kLaneElems = kUbBlockBytes / 4;  // int32 or float32 in a 32-byte block
constexpr int64_t kMaxRopeDim = 2048;
constexpr int32_t kMaxDevicePageShift = 19;  // so that 2048 page ids of a tile count their units within int32
constexpr int32_t kMaxDeviceLanes = 1024;    // slots that one row of an output has at most

// Rows that V scans have lengths of at most this, and bring at most so many tokens: sums then fit int32.
constexpr int64_t kMostScannedLength = (int64_t{1} << 29) - 1;
constexpr int64_t kMostScannedTokens = (int64_t{1} << 21) - 1;
// And the sums of the rows before are at most this.
constexpr int64_t kMostScannedTotal = int64_t{1} << 30;
static_assert(kMostScannedTotal + kChunkRows * kMostScannedTokens <= INT32_MAX);

// UB that the stages of a kernel use one after the other.
constexpr int64_t kScratchElems = kPageTileEntries * (kLaneElems + 2) + kNothingEntries;
static_assert(kScratchElems >= kTileEntries * 4, "steps, values, and int64 values");
static_assert(kScratchElems >= kPageTileEntries * 6, "a row of each page table");
static_assert(kScratchElems >= round_up<int64_t>(kMaxDeviceRows + 1, kLaneElems), "kv lengths");
// Three int64 inputs of a chunk, of which offsets have one entry more; what is left serves the scan of them.
constexpr int64_t kRowInputElems = 3 * kChunkRows * 2 + kLaneElems;
constexpr int64_t kRowScanElems = kScratchElems - kRowInputElems;
static_assert(kScratchElems >= 8 * kMaxRopeDim, "two rows of four RoPE tables");

// A prefix has one entry more than there are rows.
DSV4_HOST_DEVICE constexpr int64_t row_array_elems(int64_t num_rows) {
    return round_up<int64_t>(num_rows + 1, kLaneElems);
}

static_assert((kRowArrays * row_array_elems(kMaxDeviceRows) + kTileEntries + kScratchElems) * 4 <= kUbBudgetBytes);

// UB of a scan of at most `lanes` rows by V, with so many areas of the caller's own and sums at a time
// (device/lane_scan.h), in int32.
DSV4_HOST_DEVICE constexpr int64_t lane_scan_elems(int64_t lanes, int64_t areas, int64_t sums = 1) {
    return (areas + 5) * (lanes + kLaneElems) + 2 * sums * (lanes + kLaneElems + lanes / 2);
}

}  // namespace dsv4
