// SPDX-License-Identifier: Apache-2.0
// Processes that exchange packed messages over MPI, on a duplicate of a communicator: its rank d is device d. A process
// that fails tells the others, and all end with a sentence; one that *dies* takes the job along: that is mpirun's way.
// Builds on: transport/exchange.hpp, transport/mpi/meeting.hpp, transport/mpi/wire.hpp. The one of these to include;
// needs mpi.h.
#pragma once

#include <memory>

#include <reshard/transport/exchange.hpp>
#include <reshard/transport/mpi/meeting.hpp>
#include <reshard/transport/mpi/wire.hpp>
#include <reshard/transport/transport.hpp>

namespace reshard {

/// How an end of a world over MPI works; the same on all devices.
struct mpi_options {
  patience wait = default_patience;
  exchange_as how = exchange_as::asynchronous;
  bytes_t chunk_bytes = mpi_chunk_bytes;  // a longer message is sent in several
  bytes_t round_bytes = usual_round_bytes;
  bytes_t fixed_bytes =
      0;  // F: what MPI's own buffers take on a device, as measured by who knows; paid from the budget
};

namespace detail {
struct mpi_parts {
  mpi_parts(MPI_Comm world, const mpi_options& options)
      : own(std::make_unique<mpi_meeting>(world, options.wait)), meeting(*own), wire(meeting, options.chunk_bytes) {
    require_alike(options);
  }
  mpi_parts(mpi_meeting& over, const mpi_options& options) : meeting(over), wire(meeting, options.chunk_bytes) {
    require_alike(options);
  }

  /// All devices have chunks that MPI can send, of one size.
  void require_alike(const mpi_options& options) {
    const bytes_t mine = options.chunk_bytes;
    proposal brought{mine};
    if (mine < 1 || mine > most_chunk_bytes)
      brought.sentence = text_of("chunks of ", mine, " bytes; MPI sends 1 to ", most_chunk_bytes, " at a time");
    if (options.fixed_bytes < 0)
      brought.sentence = text_of("buffers of ", options.fixed_bytes, " bytes; 0 is the least");
    const agreement all = meeting.agree(brought);
    const bytes_t fewest = -meeting.agree({-mine}).largest;
    if (all.refuser >= 0) refuse("device ", all.refuser, ": ", all.sentence);
    if (fewest != all.largest)
      refuse("the devices were given chunks from ", fewest, " to ", all.largest, " bytes; a world has one size");
  }

  std::unique_ptr<mpi_meeting> own;  // where it was not given one
  mpi_meeting& meeting;
  mpi_wire wire;
};
}  // namespace detail

/// One process's end of a world of processes: a transport. Made and used by one thread, between MPI_Init and
/// MPI_Finalize.
class mpi_endpoint : private detail::mpi_parts, public exchange<mpi_meeting, mpi_wire> {
 public:
  /// Made by every process of the communicator; peer_missing where not all come within the patience.
  explicit mpi_endpoint(MPI_Comm world, const mpi_options& options = {})
      : detail::mpi_parts(world, options),
        exchange(mpi_parts::meeting, mpi_parts::wire, options.how, options.round_bytes), fixed_(options.fixed_bytes) {}
  /// Made over a meeting that is there and outlives it, by all its devices, which agree on the chunks; one end at a
  /// time. The patience is the meeting's.
  explicit mpi_endpoint(mpi_meeting& over, const mpi_options& options = {})
      : detail::mpi_parts(over, options),
        exchange(mpi_parts::meeting, mpi_parts::wire, options.how, options.round_bytes), fixed_(options.fixed_bytes) {}

  transport_facts facts() const {
    transport_facts all = exchange::facts();
    all.fixed_bytes = fixed_;
    return all;
  }

 private:
  bytes_t fixed_;
};
static_assert(Transport<mpi_endpoint>);

}  // namespace reshard
