// The only place where the compilers differ. Index headers are compiled by the host compiler and by the Ascend device
// compiler; the latter needs functions marked as callable from a core.
#pragma once

#include <cstdint>

#if defined(__CCE__)
#define DSV4_HOST_DEVICE [host, aicore] inline
#else
#define DSV4_HOST_DEVICE inline
#endif
