// SPDX-License-Identifier: Apache-2.0
#include "dump.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "parts.hpp"

namespace train {

std::vector<std::byte> packed(rank_state& of) {
  std::vector<std::byte> all;
  each_part(of.layout(), of.rank(), [&](int state, const tensor_id& t, const box<3>& part) {
    const std::size_t at = all.size();
    all.resize(at + static_cast<std::size_t>(part.volume() * width(adam[state].type)));
    of.tensors().meet({state, t, part}, [&](const bound_box& piece) {
      each_row_of(piece, part, all.data() + at,
                  [](std::byte* to, const std::byte* from, std::size_t n) { std::memcpy(to, from, n); });
    });
  });
  return all;
}

namespace {

/// Tensors by "STATE/NAME", whole.
struct whole_tensors {
  struct tensor {
    dtype type;
    std::vector<index_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, tensor> by_name;

  void place(const rank_state& of, int state, const tensor_id& t, const box<3>& part, const std::byte*& from) {
    const family& f = of.layout().family_at(t.family);
    tensor& whole = by_name[std::string(adam[state].name) + "/" + of.name_of(t)];
    if (whole.bytes.empty()) {
      whole.type = adam[state].type;
      if (f.vector()) whole.shape = {f.tensor_elements()};
      else whole.shape = {f.extent[axis_of::part] * f.extent[axis_of::row], f.extent[axis_of::column]};
      whole.bytes.resize(static_cast<std::size_t>(f.tensor_elements() * width(whole.type)));
    }
    const index_t of_element = width(whole.type), rows = f.extent[axis_of::row], columns = f.extent[axis_of::column];
    const bound_box all{{state, t, box<3>{{{0, f.extent[axis_of::part]}, {0, rows}, {0, columns}}}},
                        whole.bytes.data(),
                        {rows * columns, columns, 1},
                        of_element};
    each_row_of(all.narrowed(part), part, from,
                [](const std::byte* source, std::byte* to, std::size_t n) { std::memcpy(to, source, n); });
    from += part.volume() * of_element;
  }
  void write(const std::string& path) const {
    std::string header = "{";
    std::size_t at = 0;
    for (const auto& [name, t] : by_name) {
      std::string shape;
      for (const index_t n : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
      header += (at == 0 ? "\"" : ",\"") + name + "\":{\"dtype\":\"" + (t.type == dtype::bf16 ? "BF16" : "F32") +
                "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(at) + "," +
                std::to_string(at + t.bytes.size()) + "]}";
      at += t.bytes.size();
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::ofstream file(path, std::ios::binary);
    const std::uint64_t size = header.size();
    file.write(reinterpret_cast<const char*>(&size), sizeof size) << header;
    for (const auto& [name, t] : by_name)
      file.write(reinterpret_cast<const char*>(t.bytes.data()), static_cast<std::streamsize>(t.bytes.size()));
    if (!file.flush()) refuse("--dump: ", path, " cannot be written");
  }
};

}  // namespace

std::function<void(rank_state&, groups&)> dumping(const options& asked) {
  if (asked.dump.empty()) return nullptr;
  std::error_code error;
  std::filesystem::create_directories(asked.dump, error);
  if (error) refuse("--dump: the folder ", asked.dump, " cannot be made");
  return [folder = asked.dump](rank_state& mine, groups& with) {
    const std::vector<std::byte> post = packed(mine);
    const std::vector<bytes> all = with.all->exchange(post);
    if (with.all->rank() != 0) return;
    whole_tensors tensors;
    for (std::size_t q = 0; q < all.size(); ++q) {
      const std::byte* from = all[q].data();
      each_part(mine.layout(), static_cast<rank_t>(q),
                [&](int state, const tensor_id& t, const box<3>& part) { tensors.place(mine, state, t, part, from); });
    }
    tensors.write(folder + "/state.safetensors");
  };
}

}  // namespace train
