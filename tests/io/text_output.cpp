// SPDX-License-Identifier: Apache-2.0
// Output: what is written arrives, in order; what cannot be written is noticed; numbers as JSON has them. (The tool on
// a full disk is in io/tool.cpp.)
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include <reshard/io/text_output.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

using namespace reshard::io;
using testing::refused;

namespace {
using file_handle = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
file_handle opened(const char* path, const char* mode) {
  file_handle file(std::fopen(path, mode), std::fclose);
  REQUIRE(file != nullptr);
  return file;
}
const std::string sentence = "reshard: the output cannot be written: the disk is full, or nobody reads";

std::string content(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}
}  // namespace

TEST_CASE("a full disk is noticed: at the flush where the text is short, while writing where it is long") {
  const std::string sizes[] = {"x", std::string(5000, 'x'), std::string((1 << 20) - 1, 'x')};
  for (const std::string& text : sizes) {
    const file_handle full = opened("/dev/full", "wb");
    text_output out(full.get());
    CHECK(refused([&] { out << text; }) == "accepted");  // buffered
    CHECK(refused([&] { out.flush(); }) == sentence);
  }
  const file_handle full = opened("/dev/full", "wb");
  text_output out(full.get());
  CHECK(refused([&] {
          for (int i = 0; i < 1'000'000; ++i) out << "ten bytes\n";
        }) == sentence);
}

TEST_CASE("a file that takes nothing is noticed; one that takes all is not, and nothing to write is no fault") {
  const file_handle read_only = opened("/dev/null", "rb");
  text_output nowhere(read_only.get());
  nowhere << "x";
  CHECK(refused([&] { nowhere.flush(); }) == sentence);
  const file_handle sink = opened("/dev/null", "wb");
  text_output fine(sink.get());
  fine << std::string(3 << 20, 'x');
  CHECK(refused([&] { fine.flush(); }) == "accepted");
  const file_handle full = opened("/dev/full", "wb");
  text_output nothing(full.get());
  CHECK(refused([&] { nothing.flush(); }) == "accepted");
}

TEST_CASE("what is written arrives in order, however long, each byte once; what was flushed is no longer kept") {
  testing::dice random(1);
  const file_handle file(std::tmpfile(), std::fclose);
  REQUIRE(file != nullptr);
  std::string wanted;
  {
    text_output out(file.get());
    while (wanted.size() < (3u << 20)) {
      const index_t number = static_cast<index_t>(random.bits() >> random.below(64));
      const std::string text(static_cast<std::size_t>(random.below(20) == 0 ? random.below(300'000) : random.below(40)),
                             static_cast<char>('a' + random.below(26)));
      out << text << number;
      wanted += text + std::to_string(number);
      CHECK(out.text().size() < (1u << 20));  // no more than that is ever kept
      if (random.below(40) == 0) {
        out.flush();
        CHECK(out.text().empty());
      }
    }
    out.flush();
    out << "never flushed";
  }
  CHECK(content(file.get()) == wanted);
}

TEST_CASE("without a file everything is kept, and a flush leaves it") {
  text_output out;
  out << std::string(2 << 20, 'x') << "y";
  out.flush();
  CHECK(out.text().size() == (2u << 20) + 1);
  CHECK(out.text().back() == 'y');
}

TEST_CASE("integers in decimal, to the ends of their types; doubles in the shortest form that reads back as the same") {
  text_output out;
  out << 0 << " " << -7 << " " << std::numeric_limits<std::int64_t>::min() << " "
      << std::numeric_limits<std::uint64_t>::max() << " " << std::string_view("end");
  CHECK(out.text() == "0 -7 -9223372036854775808 18446744073709551615 end");
  testing::dice random(2);
  for (int n = 0; n < 1000; ++n) {
    const double number =
        static_cast<double>(random.bits()) / static_cast<double>(1 + (random.bits() >> random.below(64)));
    text_output one;
    one << number;
    CHECK(std::stod(one.text()) == number);
  }
  text_output half;
  half << 0.5 << " " << 3.0;
  CHECK(half.text() == "0.5 3");
}

TEST_CASE("items of a list have a comma before every one but the first") {
  for (int count = 0; count < 5; ++count) {
    text_output out;
    std::string wanted;
    json_items items(out);
    for (int i = 0; i < count; ++i) {
      items.next() << i;
      wanted += (i == 0 ? "" : ",") + std::to_string(i);
    }
    CHECK(out.text() == wanted);
  }
}
