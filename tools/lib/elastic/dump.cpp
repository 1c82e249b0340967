// SPDX-License-Identifier: Apache-2.0
#include "dump.hpp"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/memory/each_element.hpp>
#include <reshard/report/regions.hpp>

namespace elastic {

std::string digests_json(const arrays_told& of) {
  std::map<std::string, std::uint64_t> sums;
  for (const bound_box& b : of.tensors.boxes()) {
    std::uint64_t& sum =
        sums[std::string(of.tensors.list()[b.state].name) + " " + of.layout.space().model().tensor(b.tensor)];
    const auto add = [&](const auto& x, index_t i) { sum += mix64(x + mix64(static_cast<std::uint64_t>(i))); };
    const family& f = of.layout.family_at(b.tensor.family);
    switch (b.element_bytes) {
      case 1: each_element<std::uint8_t>(b, f, add); break;
      case 2: each_element<std::uint16_t>(b, f, add); break;
      case 4: each_element<std::uint32_t>(b, f, add); break;
      default: each_element<std::uint64_t>(b, f, add);
    }
  }
  std::string all;
  for (const auto& [name_of, sum] : sums) all += (all.empty() ? "\"" : ",\"") + name_of + "\":" + std::to_string(sum);
  return "{" + all + "}";
}

namespace {

/// The rows of a piece, into a part whose elements lie row by row.
void place(const bound_box& piece, const box<3>& part, std::byte* packed) {
  const box<3>& at = piece.where;
  for (index_t p = at.dim[0].begin; p < at.dim[0].end; ++p)
    for (index_t r = at.dim[1].begin; r < at.dim[1].end; ++r) {
      const index_t row = (p - part.dim[0].begin) * part.dim[1].size() + r - part.dim[1].begin;
      const std::byte* from =
          piece.data +
          ((p - at.dim[0].begin) * piece.stride[0] + (r - at.dim[1].begin) * piece.stride[1]) * piece.element_bytes;
      std::memcpy(packed + (row * part.dim[2].size() + at.dim[2].begin - part.dim[2].begin) * piece.element_bytes, from,
                  static_cast<std::size_t>(at.dim[2].size() * piece.element_bytes));
    }
}

}  // namespace

void dump(const std::string& folder, const std::string& id, const arrays_told& of, index_t version) {
  static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");
  std::filesystem::create_directories(folder);
  const std::string stem = folder + "/" + std::to_string(of.rank);
  const state_list& list = of.tensors.list();
  io::text_output told;
  io::write_rank_json(told, of.layout, of.rank, list.all(), list);
  const std::string whole(told.text()), key = "\"regions\":";
  const std::string holds =
      whole.substr(whole.find(key) + key.size(), whole.rfind(']') + 1 - whole.find(key) - key.size());
  std::ofstream(stem + ".json") << worker_log::text(
      "{\"id\":", worker_log::quoted(id), ",\"rank\":", of.rank, ",\"version\":", version,
      ",\"layout\":", worker_log::quoted(to_text(of.of.layout)), ",\"holds\":", holds, "}\n");
  std::ofstream bytes(stem + ".bin", std::ios::binary);
  for (const int state : list.all())
    each_held(of.layout, of.rank, list.all().role_of(state), [&](int f, const family_box& b) {
      each_tensor(f, b, [&](const tensor_id& t, const box<3>& part) {
        std::vector<std::byte> packed(static_cast<std::size_t>(part.volume() * width(list[state].type)));
        of.tensors.meet({state, t, part}, [&](const bound_box& piece) { place(piece, part, packed.data()); });
        bytes.write(reinterpret_cast<const char*>(packed.data()), static_cast<std::streamsize>(packed.size()));
      });
    });
  if (!bytes.flush()) refuse("--dump: ", stem, ".bin cannot be written");
}

}  // namespace elastic
