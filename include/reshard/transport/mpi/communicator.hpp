// SPDX-License-Identifier: Apache-2.0
// MPI, as little of it as an exchange needs: a communicator of one's own, what a call says when it fails, and a place
// for memory that requests may still use when their owner goes. MPI 3; a communicator is one thread's.
// Builds on: base/patience.hpp, base/refusal.hpp and mpi.h.
#pragma once

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // the bindings that MPI 3 took away: they would want a library of their own
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <reshard/base/integer.hpp>
#include <reshard/base/patience.hpp>
#include <reshard/base/refusal.hpp>

namespace reshard {

namespace detail {

/// Throws what MPI says where a call failed.
inline void require_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char words[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, words, &length);
  throw std::runtime_error(text_of("reshard: MPI could not ", what, ": ", std::string_view(words)));
}

inline bool mpi_runs() {
  int begun = 0, over = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&over);
  return begun != 0 && over == 0;
}

/// Keeps something until the process ends: MPI may still read or write it. It must not move what it owns. Called by any
/// thread.
template <typename T>
void keep_for_mpi(T&& what) {
  static auto* const all = new std::vector<std::unique_ptr<T>>;  // is there even when static objects go
  static auto* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  all->push_back(std::make_unique<T>(std::move(what)));
}

/// What to do between two polls that found nothing: MPI has no wait with an end. The processor goes to others at once,
/// and for longer where nothing has come for a while.
class mpi_pause {
 public:
  void again() {
    if (++times_ < 64) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  int times_ = 0;
};

}  // namespace detail

/// A duplicate of a communicator, so that no message of others is met. Its errors are returned, not fatal.
class mpi_communicator {
 public:
  /// Called by all of its processes; peer_missing where not all have called within the patience.
  mpi_communicator(MPI_Comm of, patience wait) {
    if (!detail::mpi_runs())
      refuse(
          "MPI does not run: MPI_Init comes before the first end of a world, and MPI_Finalize "
          "after the last");
    struct duplicate {
      MPI_Comm made = MPI_COMM_NULL;
      MPI_Request request = MPI_REQUEST_NULL;
    };
    auto fresh = std::make_unique<duplicate>();
    detail::require_mpi(MPI_Comm_idup(of, &fresh->made, &fresh->request), "duplicate a communicator");
    const auto end = std::chrono::steady_clock::now() + wait;
    detail::mpi_pause pause;
    for (int done = 0; done == 0; pause.again()) {
      detail::require_mpi(MPI_Test(&fresh->request, &done, MPI_STATUS_IGNORE), "duplicate a communicator");
      if (done != 0 || std::chrono::steady_clock::now() < end) continue;
      int rank = 0;
      MPI_Comm_rank(of, &rank);
      detail::keep_for_mpi(std::move(fresh));  // the call has not ended
      throw peer_missing(detail::text_of("reshard: device ", rank, " waited ", wait.count(),
                                         " ms in vain for all processes of its communicator to come"));
    }
    own_ = fresh->made;
    int rank = 0, size = 0;
    MPI_Comm_set_errhandler(own_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(own_, &rank);
    MPI_Comm_size(own_, &size);
    device_ = rank, devices_ = size;
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  ~mpi_communicator() {
    if (!abandoned_ && detail::mpi_runs()) MPI_Comm_free(&own_);
  }
  /// Something may be on its way for ever: this duplicate is not freed then, because MPI gives the number of a freed
  /// one to the next, where what was on its way would arrive.
  void abandon() { abandoned_ = true; }

  MPI_Comm get() const { return own_; }
  rank_t device() const { return device_; }
  rank_t devices() const { return devices_; }

 private:
  MPI_Comm own_ = MPI_COMM_NULL;
  rank_t device_ = 0, devices_ = 0;
  bool abandoned_ = false;
};

}  // namespace reshard
