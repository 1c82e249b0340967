// SPDX-License-Identifier: Apache-2.0
// A device's end of a transport, declared call by call; a case says one of them otherwise before it includes this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <reshard/transport/transport.hpp>

#ifndef DEVICES
#define DEVICES rank_t devices() const;
#endif
#ifndef FACTS
#define FACTS \
  transport_facts facts() const { return {.lag = 1}; }
#endif
#ifndef ALL_REDUCE_MAX
#define ALL_REDUCE_MAX std::int64_t all_reduce_max(std::int64_t);
#endif
#ifndef SETTLE
#define SETTLE void settle();
#endif
#ifndef FILL_WITH_ZEROS
#define FILL_WITH_ZEROS void fill_with_zeros(const bound_box&);
#endif
#ifndef AWAIT
#define AWAIT void await(index_t);
#endif

namespace reshard {

struct an_end {
  rank_t device() const;
  DEVICES
  FACTS
  agreement agree(const proposal&);
  ALL_REDUCE_MAX
  std::vector<std::string> gather(const std::string&);
  void keep_alive();
  void fail(const std::string&);

  bool reaches(memory_place) const;
  void locate(binding&);
  void offer(const binding&);
  SETTLE
  FILL_WITH_ZEROS

  void check_messages(bool);
  void contact(const std::vector<rank_t>&, const std::vector<rank_t>&);
  reshard::footprint footprint(const staged_plan&) const;
  int prepare(const staged_plan&, const binding&, page_stages&);
  std::string disagreement(int&);
  void connect(int&);
  void move(int&, index_t);
  AWAIT
};

}  // namespace reshard
