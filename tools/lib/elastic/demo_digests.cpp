// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <reshard/base/text.hpp>

#include "demo_judge.hpp"
#include "dump.hpp"
#include "exact_trainer.hpp"

namespace elastic {

using namespace reshard;

namespace {

/// P of a version.
std::uint64_t power_of(index_t version, index_t batch) {
  std::uint64_t power = 1;
  for (index_t s = 0; s < version; ++s) {
    std::uint64_t sum = 0;
    for (index_t k = s * batch; k < (s + 1) * batch; ++k) sum += mix64(static_cast<std::uint64_t>(k));
    power = mixing_step * power + sum;
  }
  return power;
}

/// The world as founded in its layout: arrays of a first world may be written.
world world_of(const log_event& e) {
  world w{.layout = parse_degrees(e.layout)};
  for (const std::string& one : e.members) w.members.emplace_back(one);
  require_world(w);
  return w;
}

std::map<std::string, std::uint64_t> expected_of(const model& m, const world& w, rank_t rank, std::uint64_t power) {
  world_arrays arrays(m, w, rank, adam);
  arrays.each([power](auto& x, std::uint64_t c) { x = static_cast<std::remove_reference_t<decltype(x)>>(c * power); });
  return parse_event("{\"t\":0,\"id\":\"\",\"ev\":\"end\",\"digests\":" + digests_json(arrays.told()) + "}", "the demo")
      .digests;
}

}  // namespace

void judge_digests(job_verdict& so_far, const model& m, const event_list& workers) {
  const auto later = [](const log_event& a, const log_event& b) {
    return (a.ev == "world" ? a.epoch : 0) < (b.ev == "world" ? b.epoch : 0);
  };
  const auto last = std::max_element(workers.begin(), workers.end(), later);
  if (last == workers.end() || last->ev != "world") return;  // which was told
  const world w = world_of(*last);
  const std::uint64_t power = power_of(so_far.steps, last->batch);
  const log_event* first = nullptr;
  for (const log_event& e : workers) {
    const rank_t rank = e.ev == "end" && e.why == "done" ? w.rank_of(member_name(e.id)) : -1;
    if (rank < 0) continue;
    if (first == nullptr) first = &e;
    else if (w.layout.dp == w.layout.world() && e.digests != first->digests)
      so_far.wrong.push_back("replicas differ: " + first->id + " and " + e.id);
    const auto expected = expected_of(m, w, rank, power);
    for (const auto& [tensor, sum] : expected)
      if (const auto told = e.digests.find(tensor); told == e.digests.end() || told->second != sum)
        so_far.wrong.push_back("the digest of " + tensor + " on " + e.id + " is not what its samples demand");
    if (expected.size() != e.digests.size()) so_far.wrong.push_back(e.id + " tells digests of what it does not hold");
    ++so_far.replicas;
  }
}

}  // namespace elastic
