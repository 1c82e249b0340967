// SPDX-License-Identifier: Apache-2.0
#include "dump.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

namespace train {

namespace {

/// Calls visit(state, tensor, part) with what rank q has and no lower rank has.
template <typename Visit>
void each_part(const computed_holding& h, rank_t q, Visit&& visit) {
  for (const int state : {param, master, exp_avg, exp_avg_sq})
    each_shared(h, q, state == param ? role::parameter : role::optimizer,
                [&](int f, const family_box& b, const auto& holders) {
                  if (holders[0] != q) return;
                  each_tensor(f, b, [&](const tensor_id& t, const box<3>& part) { visit(state, t, part); });
                });
}

/// Binds a part to memory in which its elements lie row by row, and copies between it and what meets it.
template <typename Copy>
void each_copied_row(const bound_box& piece, const box<3>& part, std::byte* packed, Copy&& copy) {
  const index_t rows = part.dim[1].size(), columns = part.dim[2].size();
  for (index_t p = piece.where.dim[0].begin; p < piece.where.dim[0].end; ++p)
    for (index_t r = piece.where.dim[1].begin; r < piece.where.dim[1].end; ++r) {
      const index_t at = ((p - part.dim[0].begin) * rows + r - part.dim[1].begin) * columns + piece.where.dim[2].begin -
                         part.dim[2].begin,
                    from = (p - piece.where.dim[0].begin) * piece.stride[0] +
                           (r - piece.where.dim[1].begin) * piece.stride[1];
      copy(packed + at * piece.element_bytes, piece.data + from * piece.element_bytes,
           static_cast<std::size_t>(piece.where.dim[2].size() * piece.element_bytes));
    }
}

std::vector<std::byte> packed(rank_state& of) {
  std::vector<std::byte> all;
  each_part(of.layout(), of.rank(), [&](int state, const tensor_id& t, const box<3>& part) {
    const std::size_t at = all.size();
    all.resize(at + static_cast<std::size_t>(part.volume() * width(adam[state].type)));
    of.tensors().meet({state, t, part}, [&](const bound_box& piece) {
      each_copied_row(piece, part, all.data() + at,
                      [](std::byte* to, const std::byte* from, std::size_t n) { std::memcpy(to, from, n); });
    });
  });
  return all;
}

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
    auto* const read = const_cast<std::byte*>(from);
    each_copied_row(all.narrowed(part), part, read,
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
