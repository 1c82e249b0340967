// SPDX-License-Identifier: Apache-2.0
// Switches between layouts of different trainers, over threads and over messages: Megatron's ZeRO-1 to FSDP2's rows
// under Hugging Face's names and back, bit for bit; and a vocabulary that grows by padding, whose new rows are zeros.
// Bytes are those that the oracle counts.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/hf_config.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../oracle/trainer_switch.hpp"
#include "../support/judged.hpp"

using namespace reshard;
namespace trainer = oracle::trainer;

namespace {

constexpr patience soon = std::chrono::seconds(60);

std::string text_of_file(const std::string& name) {
  std::ifstream stream(std::string(RESHARD_TEST_DATA) + "/" + name);
  REQUIRE(stream.good());
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<rank_storage> storage_of(const space& s, pages_are pages = pages_are::reserved) {
  std::vector<rank_storage> all;
  for (rank_t r = 0; r < s.ranks(); ++r) all.emplace_back(s, r, "rank " + std::to_string(r), pages);
  return all;
}

/// A copy of every element of a binding, box after box.
std::vector<std::vector<std::byte>> elements_of(const binding& b) {
  std::vector<std::vector<std::byte>> all;
  for (const bound_box& box : b.boxes()) {
    std::vector<std::byte>& bytes = all.emplace_back();
    const auto width = static_cast<std::size_t>(box.element_bytes);
    for (index_t i = 0; i < box.where.dim[0].size(); ++i)
      for (index_t j = 0; j < box.where.dim[1].size(); ++j)
        for (index_t k = 0; k < box.where.dim[2].size(); ++k) {
          const std::byte* element =
              box.data + (i * box.stride[0] + j * box.stride[1] + k * box.stride[2]) * box.element_bytes;
          bytes.insert(bytes.end(), element, element + width);
        }
  }
  return all;
}

/// What the oracle counts of a switch whose ranks sit on the lowest devices.
trainer::switch_totals counted(const std::string& config, const std::string& from, const std::string& to) {
  trainer::switch_question q;
  q.m = trainer::read_model(nlohmann::json::parse(config));
  q.from = trainer::parse(q.m, from);
  q.to = trainer::parse(q.m, to);
  q.states = trainer::parse_states("adam");
  for (long r = 0; r < q.from.world; ++r) q.from_devices.push_back(r);
  for (long r = 0; r < q.to.world; ++r) q.to_devices.push_back(r);
  return trainer::needs(q);
}

/// Moves the state of every device, whose own reports must add up to what the oracle counts.
template <typename World>
void move_all(const std::string& config, const space& from, const space& to, std::vector<rank_storage>& before,
              std::vector<rank_storage>& after, const switch_options& options) {
  const layout_switch change(from, to);
  World world(change.devices(), soon);
  std::vector<switch_report> reports(static_cast<std::size_t>(change.devices()));
  std::vector<rank_storage> none(reports.size());
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    reports[d] = switch_state(change, (d < before.size() ? before[d] : none[d]).tensors(),
                              (d < after.size() ? after[d] : none[d]).tensors(), here, options);
  });
  bytes_t received = 0, sent = 0, retained = 0, had = 0, has = 0;
  for (const switch_report& r : reports) received += r.received, sent += r.sent, retained += r.retained;
  for (rank_t r = 0; r < from.ranks(); ++r) had += held_bytes(from, r);
  for (rank_t r = 0; r < to.ranks(); ++r) has += held_bytes(to, r);
  const trainer::switch_totals wanted = counted(config, to_text(from.degrees()), to_text(to.degrees()));
  CHECK(received == wanted.least_bytes);
  CHECK(sent == wanted.least_bytes);
  CHECK(retained == has - wanted.least_bytes - wanted.created_bytes);
  const switch_volume volume = volume_of(change);
  CHECK(volume.moved == wanted.least_bytes);
  CHECK(volume.created == wanted.created_bytes);
  for (const rank_storage& gone : before) CHECK(gone.resident_bytes() == 0);
  CHECK(had > 0);
}

template <typename World>
void there_and_back(const switch_options& options) {
  const std::string config = text_of_file("tiny_qwen3_moe.config.json");
  const model m = io::parse_config(config, "tiny");
  const space megatron(m, parse_degrees("tp=2,pp=2,dp=2,ep=4,zero=1")),
      rows(m, parse_degrees("tp=2,dp=4,ep=4,zero=3,shard=rows,names=hf"));
  std::vector<rank_storage> first = storage_of(megatron), middle = storage_of(rows), last = storage_of(megatron);
  std::vector<std::vector<std::vector<std::byte>>> filled;
  for (rank_storage& r : first) {
    testing::write_by_judge(r.tensors(), computed_holding(megatron));
    filled.push_back(elements_of(r.tensors()));
  }
  move_all<World>(config, megatron, rows, first, middle, options);
  for (const rank_storage& r : middle) {
    const comparison found = testing::compare(testing::filled_by::judge, r.tensors(), computed_holding(rows));
    CHECK(found.elements > 0);
    CHECK(found.wrong == 0);
  }
  move_all<World>(config, rows, megatron, middle, last, options);
  for (std::size_t r = 0; r < last.size(); ++r) {
    CHECK(testing::compare(testing::filled_by::judge, last[r].tensors(), computed_holding(megatron)).wrong == 0);
    CHECK(elements_of(last[r].tensors()) == filled[r]);
  }
}

constexpr const char* gpt2 = R"({"architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 8, "n_head": 8,
  "n_positions": 16, "vocab_size": 50257})";

/// Elements of the rows that FROM does not have, and of these how many are zero.
struct new_rows {
  bytes_t bytes = 0;
  index_t elements = 0, zeros = 0;
};
new_rows new_rows_of(const binding& b, const space& to, index_t rows_of_from) {
  new_rows found;
  for (const bound_box& box : b.boxes()) {
    if (to.family_at(box.tensor.family).padded != padded_as::vocabulary) continue;
    const interval rows = intersect(box.where.dim[1], {rows_of_from, box.where.dim[1].end});
    if (rows.empty()) continue;
    const std::vector<std::byte> zero(static_cast<std::size_t>(box.element_bytes));
    for (index_t j = rows.begin; j < rows.end; ++j)
      for (index_t k = 0; k < box.where.dim[2].size(); ++k, ++found.elements) {
        const std::byte* element =
            box.data + ((j - box.where.dim[1].begin) * box.stride[1] + k * box.stride[2]) * box.element_bytes;
        found.zeros += std::memcmp(element, zero.data(), zero.size()) == 0 ? 1 : 0;
        found.bytes += box.element_bytes;
      }
  }
  return found;
}

/// The binding without the rows that FROM does not have.
binding common_rows(const binding& b, const space& to, index_t rows_of_from) {
  binding common(b.who());
  for (const bound_box& box : b.boxes()) {
    reshard::box<3> within = box.where;
    if (to.family_at(box.tensor.family).padded == padded_as::vocabulary)
      within.dim[1] = intersect(within.dim[1], {0, rows_of_from});
    if (!within.empty()) common.add(box.narrowed(within));
  }
  common.seal();
  return common;
}

template <typename World>
void grown_vocabulary(pages_are targets, const switch_options& options) {
  const model m = io::parse_config(gpt2, "a small GPT-2");
  const space from(m, parse_degrees("tp=1,zero=1")), to(m, parse_degrees("tp=8,pad=128,zero=1"));
  std::vector<rank_storage> before = storage_of(from), after = storage_of(to, targets);
  for (rank_storage& r : before) testing::write_by_judge(r.tensors(), computed_holding(from));
  if (targets == pages_are::committed)  // zeros are written, not found
    for (rank_storage& r : after)
      for (const bound_box& box : r.tensors().boxes())
        std::memset(box.data, 0xff, static_cast<std::size_t>(box.bytes_spanned()));
  move_all<World>(gpt2, from, to, before, after, options);
  new_rows sum;
  for (const rank_storage& r : after) {
    const new_rows found = new_rows_of(r.tensors(), to, 50257);
    sum.bytes += found.bytes, sum.elements += found.elements, sum.zeros += found.zeros;
    const binding common = common_rows(r.tensors(), to, 50257);
    const comparison compared = testing::compare(testing::filled_by::judge, common, computed_holding(to));
    CHECK(compared.elements > 0);
    CHECK(compared.wrong == 0);
  }
  CHECK(sum.elements == (51200 - 50257) * 8 * 4);  // in four states
  CHECK(sum.zeros == sum.elements);
  CHECK(sum.bytes == counted(gpt2, "tp=1,zero=1", "tp=8,pad=128,zero=1").created_bytes);
  CHECK(sum.bytes == (51200 - 50257) * 8 * 14);
}

}  // namespace

TEST_CASE("Megatron's ZeRO-1 to rows under Hugging Face's names and back, over threads: the same bits") {
  there_and_back<thread_group>({});
  there_and_back<thread_group>({.budget = 2_MiB});
}

TEST_CASE("the same over messages") {
  there_and_back<mailbox_group>({});
  there_and_back<mailbox_group>({.budget = 2_MiB});
}

TEST_CASE("a vocabulary of 50257 rows padded to 51200: common rows move, new ones are zero in every state") {
  grown_vocabulary<thread_group>(pages_are::committed, {});
  grown_vocabulary<mailbox_group>(pages_are::reserved, {.budget = 1_MiB});
}
