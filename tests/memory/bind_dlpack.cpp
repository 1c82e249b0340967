// SPDX-License-Identifier: Apache-2.0
// Tensors by DLPack: dlpack.h's own struct where this machine has it, and one with the same members: with strides, with
// an offset, of every type and kind of device, bound or refused by name.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define RESHARD_HAS_DLPACK 1
#endif

#include <reshard/memory/bind_dlpack.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {

/// The members that the library reads, of other integer types here and there.
struct own_tensor {
  void* data;
  struct {
    int device_type;
    int device_id;
  } device;
  long ndim;
  struct {
    std::uint8_t code, bits;
    std::uint16_t lanes;
  } dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
static_assert(DLPackTensor<own_tensor>);
#ifdef RESHARD_HAS_DLPACK
static_assert(DLPackTensor<DLTensor>);
using installed_tensor = DLTensor;
#else
struct installed_tensor : own_tensor {};  // the same cases once more
#endif

struct described {
  std::int64_t shape[3], strides[3];
  int ndim = 2, device = 1, number = 0, code = 4, bits = 16, lanes = 1;
  std::uint64_t offset = 0;
  bool has_strides = true;
};
template <typename Tensor>
Tensor tensor_of(described& d, void* data) {
  Tensor t{};
  t.data = data;
  // also a number that the enumeration of this machine's dlpack.h does not know
  static_assert(sizeof t.device.device_type == sizeof d.device);
  std::memcpy(&t.device.device_type, &d.device, sizeof d.device);
  t.device.device_id = d.number;
  t.ndim = d.ndim;
  t.dtype.code = static_cast<std::uint8_t>(d.code), t.dtype.bits = static_cast<std::uint8_t>(d.bits);
  t.dtype.lanes = static_cast<std::uint16_t>(d.lanes);
  t.shape = d.shape;
  t.strides = d.has_strides ? d.strides : nullptr;
  t.byte_offset = d.offset;
  return t;
}
const shard weight{0, "w", bf16, {8, 6}, {2, 0}, {4, 6}};

/// What comes of binding a tensor as the shard.
template <typename Tensor>
std::string bound(described d, const shard& s, binding& out, void* data) {
  const shard_list shards({s});
  const listed_holding list(shards);
  const Tensor t = tensor_of<Tensor>(d, data);
  return refused([&] { bind_dlpack(out, list.table(), s, t); });
}

}  // namespace

TEST_CASE_TEMPLATE("a tensor with strides and an offset is bound where its elements lie", Tensor, own_tensor,
                   installed_tensor) {
  std::vector<std::uint16_t> memory(200);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint16_t>(i);
  const auto elements = [&](const binding& b, bool transposed, index_t pitch, index_t first) {
    index_t seen = 0;
    for (const bound_box& box : b.boxes())
      for (index_t r = box.where.dim[1].begin; r < box.where.dim[1].end; ++r)
        for (index_t c = box.where.dim[2].begin; c < box.where.dim[2].end; ++c) {
          const std::byte* const at =
              box.data + ((r - box.where.dim[1].begin) * box.stride[1] + (c - box.where.dim[2].begin) * box.stride[2]) *
                             box.element_bytes;
          const index_t row = r - 2;
          CHECK(*reinterpret_cast<const std::uint16_t*>(at) ==
                first + (transposed ? c * pitch + row : row * pitch + c));
          ++seen;
        }
    return seen;
  };
  binding dense("dense"), pitched("pitched"), turned("turned");
  CHECK(bound<Tensor>({.shape = {4, 6, 0}, .strides = {}, .has_strides = false}, weight, dense, memory.data()) ==
        "accepted");
  CHECK(elements(dense, false, 6, 0) == 24);
  CHECK(bound<Tensor>({.shape = {4, 6, 0}, .strides = {10, 1, 0}, .offset = 14}, weight, pitched, memory.data()) ==
        "accepted");
  CHECK(elements(pitched, false, 10, 7) == 24);
  CHECK(bound<Tensor>({.shape = {4, 6, 0}, .strides = {1, 5, 0}, .offset = 2}, weight, turned, memory.data()) ==
        "accepted");
  CHECK(elements(turned, true, 5, 1) == 24);
  CHECK(dense.place() == memory_place{});
}

TEST_CASE_TEMPLATE("every kind of device is bound or refused by name", Tensor, own_tensor, installed_tensor) {
  std::vector<std::uint16_t> memory(24);
  for (int device = 0; device <= 20; ++device) {
    CAPTURE(device);
    binding b("rank 0");
    const std::string said = bound<Tensor>({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .device = device, .number = 2},
                                           weight, b, memory.data());
    using kind = memory_place::kind;
    if (device == 1) CHECK(b.place() == memory_place{kind::host, 0});
    if (device == 2) CHECK(b.place() == memory_place{kind::device, 2});
    if (device == 3) CHECK(b.place() == memory_place{kind::pinned, 0});
    if (device >= 1 && device <= 3) {
      CHECK(said == "accepted");
    } else {
      CHECK(said.starts_with("reshard: rank 0: param of 'w' is a tensor of DLPack's device type " +
                             std::to_string(device)));
      CHECK(b.boxes().empty());
    }
    const char* const name = device == 4    ? ", OpenCL;"
                             : device == 8  ? ", Metal;"
                             : device == 10 ? ", ROCm;"
                             : device == 13 ? ", CUDA's managed memory;"
                             : device == 17 ? ", MAIA;"
                                            : "";
    CHECK(said.find(name) != said.npos);
  }
  binding both("rank 0");
  shard other = weight;
  other.state = "exp_avg", other.type = fp32;
  std::vector<float> numbers(24);
  CHECK(bound<Tensor>({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .device = 2}, weight, both, memory.data()) ==
        "accepted");
  CHECK(bound<Tensor>({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .device = 2, .number = 1, .code = 2, .bits = 32},
                      other, both, numbers.data()) ==
        "reshard: rank 0: exp_avg of 'w' lies in device memory of device 1, and others of rank 0 in device memory of "
        "device 0; a binding lies in one place");
}

TEST_CASE_TEMPLATE("types, shapes and strides that are not the shard's are refused", Tensor, own_tensor,
                   installed_tensor) {
  std::vector<std::uint64_t> memory(64);
  const auto said = [&](described d, void* data) {
    binding b("rank 0");
    return bound<Tensor>(d, weight, b, data);
  };
  const std::string of = "reshard: rank 0: param of 'w' ";
  CHECK(said({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .code = 0}, memory.data()) ==
        of + "is bf16, and its tensor is int of 16 bits");
  CHECK(said({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .code = 2, .bits = 64}, memory.data()) ==
        of + "is bf16, and its tensor is float of 64 bits");
  CHECK(said({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .lanes = 2}, memory.data()) ==
        of + "is bf16, and its tensor is bfloat of 16 bits, 2 at a time");
  CHECK(said({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .code = 31}, memory.data()) ==
        of + "is bf16, and its tensor is type code 31 of 16 bits");
  constexpr const char* codes[] = {"int",    "uint",   "float",  "handle", "bfloat", "complex", "bool",  "float8",
                                   "float8", "float8", "float8", "float8", "float8", "float8",  "float8"};
  for (std::uint8_t code = 0; code < 16; ++code)
    CHECK(said({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .code = code, .bits = 8}, memory.data()) ==
          of + "is bf16, and its tensor is " + (code < 15 ? codes[code] : "type code 15") + " of 8 bits");
  CHECK(said({.shape = {4, 6, 1}, .strides = {6, 1, 1}, .ndim = 3}, memory.data()) ==
        of + "has 2 dimensions, and its tensor has 3");
  CHECK(said({.shape = {4, 5, 0}, .strides = {6, 1, 0}}, memory.data()) ==
        of + "has 6 elements in dimension 1, and its tensor has 5");
  CHECK(said({.shape = {4, 6, 0}, .strides = {-6, 1, 0}}, memory.data()) ==
        of + "has a stride of -6 elements in dimension 0; strides count forwards");
  CHECK(said({.shape = {4, 6, 0}, .strides = {6, 1, 0}}, nullptr) ==
        of + "has 24 elements, and its tensor has no memory");
  CHECK(said({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .offset = 3}, memory.data()) ==
        of + "is bf16, and its tensor begins 3 bytes into its memory, at an address that no element of 2 bytes has");
}

TEST_CASE_TEMPLATE("every type of a state takes the types that DLPack has for it, and no other", Tensor, own_tensor,
                   installed_tensor) {
  std::vector<std::uint64_t> memory(64);
  for (const dtype type : {dtype::bf16, dtype::fp16, dtype::fp32, dtype::fp8}) {
    const state_list list = parse_state_list("param:" + std::string(name(type)) + ":3");
    shard s = weight;
    s.type = type;
    const shard_list shards({s});
    const listed_holding listed(shards, list);
    for (int code = 0; code <= 15; ++code)
      for (const int bits : {8, 16, 32, 64}) {
        binding b("rank 0", {}, list);
        described d{.shape = {4, 6, 0}, .strides = {6, 1, 0}, .code = code, .bits = bits};
        const Tensor t = tensor_of<Tensor>(d, memory.data());
        const bool accepted = refused([&] { bind_dlpack(b, listed.table(), s, t); }) == "accepted";
        const bool floats = (code == 4 && bits == 16) || (code == 2 && (bits == 16 || bits == 32));
        CHECK(accepted == (detail::is_dlpack_type(type, code, bits, 1) || (floats && type != dtype::fp8)));
        if (accepted) CHECK(b.boxes()[0].converts() == !detail::is_dlpack_type(type, code, bits, 1));
        if (accepted) CHECK(b.boxes()[0].element_bytes == bits / 8);
      }
  }
}

TEST_CASE("types and their codes") {
  constexpr dtype types[] = {dtype::bf16, dtype::fp16, dtype::fp32,  dtype::fp64,
                             dtype::fp8,  dtype::int8, dtype::int32, dtype::int64};
  for (const dtype type : types) {
    CAPTURE(name(type));
    int taken = 0;
    for (int code = 0; code <= 15; ++code)
      for (const int bits : {8, 16, 32, 64}) {
        const bool is = detail::is_dlpack_type(type, code, bits, 1);
        if (is) CHECK(bits == 8 * width(type));
        if (is && bits > 8) CHECK((code == 4) == (type == dtype::bf16));
        CHECK_FALSE(detail::is_dlpack_type(type, code, bits, 4));
        taken += is ? 1 : 0;
      }
    CHECK(taken == (type == dtype::fp8                             ? 9
                    : type == dtype::int8                          ? 3
                    : type == dtype::int32 || type == dtype::int64 ? 2
                                                                   : 1));
  }
}

TEST_CASE("types and their codes, one by one: floats, numbers with a sign or without, a bool of a byte, and fp8") {
  const std::vector<std::tuple<dtype, int, std::vector<int>>> all = {{dtype::bf16, 16, {4}},
                                                                     {dtype::fp16, 16, {2}},
                                                                     {dtype::fp32, 32, {2}},
                                                                     {dtype::fp64, 64, {2}},
                                                                     {dtype::fp8, 8, {1, 7, 8, 9, 10, 11, 12, 13, 14}},
                                                                     {dtype::int8, 8, {0, 1, 6}},
                                                                     {dtype::int32, 32, {0, 1}},
                                                                     {dtype::int64, 64, {0, 1}}};
  for (const auto& [type, bits, codes] : all) {
    std::vector<int> taken;
    for (int code = -1; code <= 16; ++code)
      if (detail::is_dlpack_type(type, code, bits, 1)) taken.push_back(code);
    CHECK(taken == codes);
  }
}

TEST_CASE("kinds of devices without a name are told by their number alone") {
  std::vector<std::uint16_t> memory(24);
  for (const int device : {0, 5, 6, 18, -1}) {
    binding b("rank 0");
    CHECK(bound<own_tensor>({.shape = {4, 6, 0}, .strides = {6, 1, 0}, .device = device}, weight, b, memory.data()) ==
          "reshard: rank 0: param of 'w' is a tensor of DLPack's device type " + std::to_string(device) +
              "; host memory (1), CUDA (2) and CUDA's pinned memory (3) can be bound");
  }
}

TEST_CASE("a stride may be 0; a tensor without elements needs no memory and binds nothing") {
  std::vector<std::uint16_t> memory(6);
  const shard row{0, "w", bf16, {8, 6}, {2, 0}, {1, 6}};
  binding one("rank 0");
  CHECK(bound<own_tensor>({.shape = {1, 6, 0}, .strides = {0, 1, 0}}, row, one, memory.data()) == "accepted");
  REQUIRE(one.boxes().size() == 1);
  CHECK(one.boxes()[0].stride[1] == 0);
  for (const auto& [rows, columns] : {std::pair<index_t, index_t>(0, 6), {5, 0}, {0, 0}}) {
    const shard empty{0, "w", bf16, {8, 6}, {2, 0}, {rows, columns}};
    const described d{.shape = {rows, columns, 0}, .strides = {100, 1, 0}, .offset = 1};
    const std::vector<shard> list{{0, "w", bf16, {8, 6}, {0, 0}, {8, 6}}};
    const tensor_table table{&list};
    for (void* data : {static_cast<void*>(nullptr), static_cast<void*>(memory.data())}) {
      described of = d;
      const own_tensor t = tensor_of<own_tensor>(of, data);
      binding none("rank 0");
      CHECK(refused([&] { bind_dlpack(none, table, empty, t); }) == "accepted");
      CHECK(none.boxes().empty());
    }
  }
}
