// Who is ordered before whom inside one block: a vector clock over the four pipes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ascend_sim/runtime.h"

namespace ascend_sim {

// at[p]: every instruction of pipe p up to this number is finished.
struct Clock {
    uint32_t at[kPipes] = {0, 0, 0, 0};

    void Join(const Clock& other) {
        for (int p = 0; p < kPipes; ++p) {
            at[p] = std::max(at[p], other.at[p]);
        }
    }
};

// Instructions of a pipe are numbered from 1. The scalar pipe runs in order, so its number only counts the points
// at which other pipes may learn of it (a flag set by S, a full barrier): accesses in between share one number.
class Timeline {
  public:
    void Reset() {
        for (int p = 0; p < kPipes; ++p) {
            issued_[p] = 0;
            known_[p] = Clock{};
        }
        issued_[Index(Pipe::S)] = 1;
    }

    uint32_t Issue(Pipe pipe) { return pipe == Pipe::S ? issued_[0] : ++issued_[Index(pipe)]; }

    bool Ordered(Pipe now, Pipe earlier, uint32_t number) const {
        if (now == Pipe::S && earlier == Pipe::S) {
            return true;
        }
        return number <= known_[Index(now)].at[Index(earlier)];
    }

    // What a flag set by `pipe` tells its waiter: all that the pipe has been given so far, and all that it waited for.
    Clock Release(Pipe pipe) {
        Clock clock = known_[Index(pipe)];
        clock.at[Index(pipe)] = issued_[Index(pipe)];
        if (pipe == Pipe::S) {
            ++issued_[0];
        }
        return clock;
    }

    // A pipe that waits learns of it; a waiting S holds back everything issued later, on any pipe.
    void Acquire(Pipe pipe, const Clock& clock) {
        if (pipe == Pipe::S) {
            for (Clock& known : known_) {
                known.Join(clock);
            }
        } else {
            known_[Index(pipe)].Join(clock);
        }
    }

    void Barrier(Pipe pipe) { known_[Index(pipe)].at[Index(pipe)] = issued_[Index(pipe)]; }

    void BarrierAll() {
        Clock all;
        for (int p = 0; p < kPipes; ++p) {
            all.at[p] = issued_[p];
        }
        for (Clock& known : known_) {
            known = all;
        }
        ++issued_[0];
    }

    uint32_t Known(Pipe of, Pipe about) const { return known_[Index(of)].at[Index(about)]; }
    uint32_t Issued(Pipe pipe) const { return issued_[Index(pipe)]; }

    static int Index(Pipe pipe) { return static_cast<int>(pipe); }

  private:
    uint32_t issued_[kPipes] = {1, 0, 0, 0};
    Clock known_[kPipes];
};

}  // namespace ascend_sim
