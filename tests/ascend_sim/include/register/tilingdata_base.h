// An operator's host-side definition of its tiling struct, read as the struct itself.
#pragma once

#include <cstdint>

#define BEGIN_TILING_DATA_DEF(tiling_struct) struct tiling_struct {
#define TILING_DATA_FIELD_DEF(type, name) type name;
#define TILING_DATA_FIELD_DEF_ARR(type, length, name) type name[length];
#define TILING_DATA_FIELD_DEF_STRUCT(type, name) type name;
#define END_TILING_DATA_DEF \
    }                       \
    ;
#define REGISTER_TILING_DATA_CLASS(op, tiling_struct) static_assert(sizeof(tiling_struct) != 0);
