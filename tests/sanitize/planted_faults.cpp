// One fault a function, for the sanitizers to find; and two parallel loops without one. Never part of the package.
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

// What the optimiser cannot see through.
template <typename T>
T opaque(T value) {
    asm volatile("" : "+r"(value) : : "memory");
    return value;
}

}  // namespace

extern "C" {

int heap_overflow() {
    std::vector<int> values(4, 1);
    return opaque(values.data())[4];
}

int use_after_free() {
    int* values = static_cast<int*>(std::malloc(4 * sizeof(int)));
    values[0] = 1;
    std::free(opaque(values));
    return opaque(values)[0];
}

int stack_overflow() {
    int values[4] = {1, 2, 3, 4};
    return opaque(&values[0])[opaque(5)];
}

void null_memcpy() {
    char target[1] = {0};
    std::memcpy(opaque(&target[0]), opaque(static_cast<char*>(nullptr)), opaque(size_t{0}));
}

int signed_overflow() { return opaque(INT_MAX) + opaque(1); }

int shift_too_far() { return opaque(1) << opaque(40); }

// Reported before the processor ends the process.
int division_by_zero() { return opaque(1) / opaque(0); }

int float_to_int() {
    volatile double large = 3e20;
    return opaque(static_cast<int>(large));
}

int unaligned_load() {
    alignas(8) char bytes[16] = {0};
    return *reinterpret_cast<int*>(opaque(&bytes[1]));
}

int racing_threads() {
    int count = 0;
    int* shared = opaque(&count);
    std::thread other([shared] { ++*shared; });
    ++*shared;
    other.join();
    return count;
}

// Two threads of one loop write to one place.
int racing_loop() {
    int last = 0;
    int* shared = opaque(&last);
#pragma omp parallel for num_threads(2)
    for (int i = 0; i < 2; ++i) {
        *shared = i;
    }
    return last;
}

// Every thread writes its own, and the thread that started the loop writes before and reads after it.
int ordered_loop() {
    std::vector<int> values(1000, 1);
    for (int round = 0; round < 10; ++round) {
#pragma omp parallel for num_threads(2)
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] += static_cast<int>(i);
        }
    }
    int sum = 0;
    for (const int value : values) {
        sum += value;
    }
    return sum;
}
}
