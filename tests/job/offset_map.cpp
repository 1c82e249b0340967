// SPDX-License-Identifier: Apache-2.0
// Offset maps of files: against a look at every token; left off and gone on with; and five hundred damaged, cut and
// strange ones, each refused in one sentence by its name.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include <reshard/job/build_offset_map.hpp>

#include "../io/process.hpp"
#include "../support/dice.hpp"
#include "../support/own_folder.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::content_of, testing::dice, testing::refused, testing::scratch;

namespace {

/// Tokens as a file has them.
std::string bytes_of(const std::vector<std::uint64_t>& tokens, index_t width) {
  std::string bytes;
  for (const std::uint64_t token : tokens)
    bytes.append(reinterpret_cast<const char*>(&token), static_cast<std::size_t>(width));
  return bytes;
}

/// Lengths of documents, by looking at every token; what stands behind the last delimiter is one too.
std::vector<index_t> lengths_of(const std::vector<std::uint64_t>& tokens, std::uint64_t delimiter) {
  std::vector<index_t> lengths;
  index_t length = 0;
  for (const std::uint64_t token : tokens) {
    ++length;
    if (token != delimiter) continue;
    lengths.push_back(length);
    length = 0;
  }
  if (length > 0) lengths.push_back(length);
  return lengths;
}

/// Tokens near the delimiter in every bit, one in `apart` being it.
std::vector<std::uint64_t> random_tokens(dice& random, index_t count, index_t width, std::uint64_t delimiter,
                                         index_t apart) {
  std::vector<std::uint64_t> tokens;
  const std::uint64_t mask = width == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * width) - 1;
  for (index_t i = 0; i < count; ++i) {
    const std::uint64_t near = delimiter ^ std::uint64_t{1} << random.below(8 * width), far = random.bits() & mask;
    const bool is_it = random.below(apart) == 0;
    tokens.push_back(is_it ? delimiter : random.coin() ? near : far);
  }
  return tokens;
}

void check_map(const std::string& source, const std::string& map, const document_form& form,
               const std::vector<index_t>& lengths) {
  const offset_map found(map);
  found.require_of(source, form);
  REQUIRE(found.count() == static_cast<index_t>(lengths.size()));
  index_t begin = 0;
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    CHECK(found.tokens_of(static_cast<index_t>(d)) == interval{begin, begin + lengths[d]});
    CHECK(found.find(begin) == document_place{static_cast<index_t>(d), 0});
    CHECK(found.find(begin + lengths[d] - 1) == document_place{static_cast<index_t>(d), lengths[d] - 1});
    begin += lengths[d];
  }
  CHECK(found.tokens() == begin);
  CHECK(content_of(map).size() == 66 + 6 * lengths.size());
  CHECK_REFUSED(found.find(begin), "documents: there is no token");
  CHECK_REFUSED(found.tokens_of(found.count()), "there is no document " + std::to_string(found.count()) + " of");
}

/// A file in memory, where thousands are written one after another.
std::string written(const testing::own_folder& in, const char* name, const std::string& content) {
  std::ofstream(in.path + "/" + name, std::ios::binary) << content;
  return in.path + "/" + name;
}

/// A file of lines and its map.
struct lines_and_map {
  scratch room;
  std::string lines, map = (room.folder / "map").string();
  explicit lines_and_map(index_t count) {
    std::string text;
    for (index_t i = 0; i < count; ++i) text += std::string(static_cast<std::size_t>(i * 37 % 91), 'x') + "\n";
    lines = room.file("lines.txt", text);
    build_offset_map(lines, map);
  }
};

}  // namespace

TEST_CASE("tokens of every width, documents short and long, the last with its delimiter and without") {
  dice random;
  const scratch room;
  const int rounds = testing::tries(120);
  int unended = 0;
  for (int i = 0; i < rounds; ++i) {
    const index_t width = index_t{1} << i % 4, apart = i % 3 == 0 ? 1 + i / 12 % 2 : i % 3 == 1 ? 9 : 400;
    const std::uint64_t delimiter = width == 1 ? std::uint64_t{'\n'} : random.bits() >> (64 - 8 * width);
    const auto tokens = random_tokens(random, random.below(2000), width, delimiter, apart);
    const std::vector<index_t> lengths = lengths_of(tokens, delimiter);
    unended += !tokens.empty() && tokens.back() != delimiter ? 1 : 0;
    const std::string source = room.file("tokens", bytes_of(tokens, width)), map = (room.folder / "map").string();
    build_offset_map(source, map, {width, delimiter});
    check_map(source, map, {width, delimiter}, lengths);
  }
  CHECK_DRAWN(unended * 6 > rounds);
}

TEST_CASE("a map on disk is read by whoever has its form: these are its bytes, computed apart") {
  // magic, 3 documents of 5 tokens, 10 bytes gone through of 10, mix_word(2, 0) + mix_word(7, 1), the sums; 2, 3 and 5
  const std::string wanted =
      "727368646f637332030000000000000005000000000000000a00000000000000"
      "0a00000000000000eabcd310b672a49b9ec184a8587931868d04126443600782"
      "0200000000000300000000000500000000000000";
  const scratch room;
  const std::string source = room.file("tokens", bytes_of({1, 7, 7, 2, 7}, 2)), map = (room.folder / "map").string();
  build_offset_map(source, map, {2, 7});
  std::string is;
  for (const char c : content_of(map))
    for (const int shift : {4, 0}) is += "0123456789abcdef"[static_cast<unsigned char>(c) >> shift & 15];
  CHECK(is == wanted);
}
TEST_CASE("a builder that was left goes on where it was; what it had begun is kept only as far as it is whole") {
  const scratch room;
  std::string text;
  while (text.size() < 3 * static_cast<std::size_t>(offset_map_builder::stretch) / 2)
    text += std::string(1 << 16, 'y') + "\n";
  const std::string source = room.file("long.txt", text), map = (room.folder / "map").string(), part = map + ".part";
  const document_form form;
  std::vector<index_t> lengths;
  for (std::size_t at = 0; at < text.size(); at += (1 << 16) + 1) lengths.push_back((1 << 16) + 1);
  { CHECK(offset_map_builder(source, map, form).advance()); }
  const std::string begun = content_of(part);
  REQUIRE(!testing::fs::exists(map));
  const auto go_on = [&](const std::string& content) {
    std::ofstream(part, std::ios::binary) << content;
    offset_map_builder builder(source, map, form);
    const bytes_t from = builder.scanned();
    while (builder.advance()) {
    }
    CHECK_FALSE(builder.advance());
    CHECK(!testing::fs::exists(part));
    check_map(source, map, form, lengths);
    return from;
  };
  CHECK(go_on(begun) == offset_map_builder::stretch);
  CHECK(go_on(begun + "what came before its head did") == offset_map_builder::stretch);
  CHECK(go_on(begun.substr(0, begun.size() - 1)) == 0);
  CHECK(go_on("") == 0);
  CHECK(go_on(begun.substr(0, 30)) == 0);
  std::string damaged = begun;
  damaged[100] = static_cast<char>(damaged[100] ^ 1);
  CHECK(go_on(damaged) == 0);
  std::ofstream(part, std::ios::binary) << begun;
  testing::fs::last_write_time(source, testing::fs::last_write_time(part) + std::chrono::seconds(1));
  CHECK(offset_map_builder(source, map, form).scanned() == 0);  // the file was written since
  std::ofstream(part, std::ios::binary) << begun;
  CHECK(offset_map_builder(room.file("other.txt", "short\n"), map, form).scanned() == 0);
  CHECK_REFUSED(offset_map(part), "it was left when 0 of 6 bytes were gone through; build it to its end");
}

TEST_CASE("five hundred maps that are damaged, cut or of something else: one sentence each, with the name") {
  dice random(1);
  lines_and_map whole(200);
  const std::string good = content_of(whole.map);
  int told[4] = {};
  for (int i = 0; i < testing::tries(500); ++i) {
    std::string bad = good;
    const index_t kind = i % 4;
    if (kind == 0)
      bad[static_cast<std::size_t>(random.below(static_cast<index_t>(bad.size())))] ^=
          static_cast<char>(1 << random.below(7));
    if (kind == 1) bad.resize(static_cast<std::size_t>(random.below(static_cast<index_t>(bad.size()))));
    if (kind == 2) bad += std::string(static_cast<std::size_t>(random.within(1, 20)), 'z');
    if (kind == 3) {
      bad.resize(static_cast<std::size_t>(random.below(400)));
      for (char& c : bad) c = static_cast<char>(random.bits());
      if (random.coin())
        bad.replace(0, std::min<std::size_t>(bad.size(), 8), good.substr(0, std::min<std::size_t>(bad.size(), 8)));
    }
    const std::string path = whole.room.file("bad", bad);
    const std::string sentence = refused([&] { const offset_map read(path); });
    CAPTURE(sentence);
    CHECK(sentence.starts_with("reshard: offset map " + path + ": "));
    CHECK(sentence.find('\n') == std::string::npos);
    ++told[kind];
  }
  MESSAGE(told[0] << " with a bit changed, " << told[1] << " cut, " << told[2] << " longer, " << told[3]
                  << " of chance");
}

TEST_CASE(
    "each bit of a map that changes, each byte that it lacks or has too many: refused by the name of what is wrong") {
  const testing::own_folder room;
  const std::string map = room.path + "/map", path = room.path + "/bad";
  build_offset_map(written(room, "lines", "ab\n\nc"), map);  // ends 3, 4, 5
  const std::string good = content_of(map), name = "reshard: offset map " + path + ": ";
  REQUIRE(good.size() == 64 + 3 * 6 + 2);
  const auto read = [&](const std::string& content) {
    written(room, "bad", content);
    return refused([&] { const offset_map all(path); });
  };
  CHECK(read(good) == "accepted");
  for (std::size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1 << bit);
      CHECK(read(bad) == name + (at < 7    ? "it is no offset map"
                                 : at < 8  ? "it is of an earlier or later form than rshdocs2; build it again"
                                 : at < 64 ? "its head is damaged"
                                           : "the ends of its 3 documents are damaged"));
    }
  for (std::size_t size = 0; size < good.size() + 20; ++size) {
    if (size == good.size()) continue;
    const std::string bytes = std::to_string(size) + " bytes";
    CHECK(read((good + std::string(20, '\0')).substr(0, size)) ==
          name + (size < 64 ? "it has " + bytes + ", and its head alone has 64"
                            : "its " + bytes + " do not hold the ends of 3 documents and no more"));
  }
}

TEST_CASE("ends of up to 48 bits are read whole, one beside the other") {
  const scratch room;
  const std::vector<index_t> ends = {1,
                                     (index_t{1} << 32) - 1,
                                     index_t{1} << 32,
                                     (index_t{1} << 47) - 1,
                                     index_t{1} << 47,
                                     (index_t{1} << 48) - 2,
                                     (index_t{1} << 48) - 1};
  detail::offset_map_head head;
  head.documents = static_cast<index_t>(ends.size());
  head.tokens = head.source_bytes = head.scanned = ends.back();
  head.width_and_delimiter = detail::offset_map_head::form_of({});
  std::string written;
  for (std::size_t d = 0; d < ends.size(); ++d) {
    written.append(reinterpret_cast<const char*>(&ends[d]), 6);
    head.ends_sum += mix_word(static_cast<std::uint64_t>(ends[d]), d);
  }
  head.head_sum = head.sum();
  const offset_map map(
      room.file("map", std::string(reinterpret_cast<const char*>(&head), 64) + written + std::string(2, '\0')));
  CHECK(map.tokens() == detail::most_tokens);
  REQUIRE(map.count() == 7);
  for (index_t d = 0; d < 7; ++d) {
    const interval tokens{d > 0 ? ends[static_cast<std::size_t>(d - 1)] : 0, ends[static_cast<std::size_t>(d)]};
    CHECK(map.tokens_of(d) == tokens);
    CHECK(map.find(tokens.begin) == document_place{d, 0});
    CHECK(map.find(tokens.end - 1) == document_place{d, tokens.size() - 1});
  }
}

TEST_CASE("what damage is called; and a head that tells lies with a right sum") {
  lines_and_map whole(200);
  const std::string good = content_of(whole.map);
  const auto with = [&](auto&& change) {
    std::string bad = good;
    detail::offset_map_head head;
    std::memcpy(&head, bad.data(), sizeof head);
    change(head, bad);
    head.head_sum = head.sum();
    std::memcpy(bad.data(), &head, sizeof head);
    const std::string path = whole.room.file("bad", bad);
    const std::string sentence = refused([&] { const offset_map read(path); });
    return sentence.substr(std::min(sentence.size(), ("reshard: offset map " + path + ": ").size()));
  };
  const auto end_of = [](std::string& bad, std::size_t d) { return bad.data() + 64 + 6 * d; };
  const auto sum_of = [&](detail::offset_map_head& head, std::string& bad) {
    head.ends_sum = 0;
    for (index_t d = 0; d < head.documents; ++d)
      head.ends_sum +=
          mix_word(static_cast<std::uint64_t>(detail::end_at(reinterpret_cast<const std::byte*>(bad.data() + 64), d)),
                   static_cast<std::uint64_t>(d));
  };
  CHECK(with([](auto& head, auto&) { head.magic[0] = 'R'; }) == "it is no offset map");
  CHECK(with([](auto& head, auto&) { head.magic[6] = 'R'; }) == "it is no offset map");
  CHECK(with([](auto& head, auto&) { head.magic[7] = '1'; }) ==
        "it is of an earlier or later form than rshdocs2; build it again");
  CHECK(with([](auto& head, auto&) { head.documents = -1; }) ==
        "its 1266 bytes do not hold the ends of -1 documents and no more");
  CHECK(with([](auto& head, auto&) { head.documents = INT64_MAX; }) ==
        "its 1266 bytes do not hold the ends of 9223372036854775807 documents and no more");
  CHECK(with([](auto& head, auto&) { head.scanned -= 1; }).find("bytes were gone through; build it to its end") !=
        std::string::npos);
  CHECK(with([](auto& head, auto&) { head.tokens += 1; }) == "the ends of its 200 documents are damaged");
  CHECK(with([&](auto& head, auto& bad) {  // an end twice: a document of nothing
          std::memcpy(end_of(bad, 3), end_of(bad, 2), 6);
          sum_of(head, bad);
        }) == "the ends of its 200 documents are damaged");
  CHECK(with([&](auto& head, auto& bad) {
          std::memset(end_of(bad, 3), 0, 6);
          sum_of(head, bad);
        }) == "the ends of its 200 documents are damaged");
  CHECK_REFUSED(offset_map(whole.room.file("bad", good.substr(0, 63))), "it has 63 bytes, and its head alone has 64");
  std::string damaged = good;
  damaged[20] = static_cast<char>(damaged[20] ^ 4);
  CHECK_REFUSED(offset_map(whole.room.file("bad", damaged)), "its head is damaged");
  CHECK_REFUSED(offset_map(whole.map + "x"), whole.map + "x cannot be opened: No such file or directory");
  CHECK_REFUSED(offset_map(whole.room.folder.string()), "is no file of bytes that stay where they are");
}

TEST_CASE("a file that is shorter, longer, another or damaged is not the map's") {
  lines_and_map whole(200);
  const offset_map map(whole.map);
  const std::string text = content_of(whole.lines);
  const auto against = [&](const std::string& content, const document_form& form = {}) {
    const std::string path = whole.room.file("other", content);
    return refused([&] { map.require_of(path, form); });
  };
  CHECK(against(text) == "accepted");
  CHECK(against(text.substr(1))
            .find("other has " + std::to_string(text.size() - 1) + " bytes, and had " + std::to_string(text.size()) +
                  " when the map was built") != std::string::npos);
  CHECK(against(text + "\n").find("when the map was built") != std::string::npos);
  CHECK(against(std::string(text.size(), 'x'))
            .ends_with(": token " + std::to_string(static_cast<long>(text.find(char{10}))) + " of " +
                       (whole.room.folder / "other").string() +
                       " is 120 and ends no document; it is another file, or damaged"));
  CHECK(against("x" + text.substr(1)).find("token 0 of") != std::string::npos);
  CHECK(against(text, {2, '\n'}).find("it was built of tokens of another width or delimiter than 2 bytes and 10") !=
        std::string::npos);
  std::string within = text;  // documents end before their ends
  for (std::size_t i = 1; i + 1 < text.size(); ++i)
    if (text[i + 1] == '\n') within[i] = '\n';
  CHECK(against(within).ends_with(" ends a document, and is within one; it is another file, or damaged"));
  const std::string one = whole.room.file("one", "abcdef"), of_one = (whole.room.folder / "of one").string();
  build_offset_map(one, of_one);
  const offset_map single(of_one);
  const std::string two = whole.room.file("two", "ab\ndef");
  CHECK_REFUSED(single.require_of(two, {}),
                "token 2 of " + two + " ends a document, and is within one; it is another file, or damaged");
  // maps whose ends and sums are right among themselves, and of a file of fewer tokens
  for (const index_t width : {1, 2, 8}) {
    const std::string six = whole.room.file("six", std::string(static_cast<std::size_t>(6 * width), 'x'));
    build_offset_map(six, of_one, {width, 10});
    std::string shorter = content_of(of_one);
    detail::offset_map_head head;
    std::memcpy(&head, shorter.data(), sizeof head);
    head.tokens = 5;
    shorter[64] = 5;
    head.ends_sum = mix_word(5, 0);
    head.head_sum = head.sum();
    std::memcpy(shorter.data(), &head, sizeof head);
    CHECK(refused([&] {
            offset_map(whole.room.file("shorter", shorter)).require_of(six, {width, 10});
          }).ends_with("it tells of 5 tokens, and " + six + " has 6"));
  }
  CHECK_REFUSED(map.tokens_of(-1), "there is no document -1 of 200");
}

TEST_CASE("one token of a file changes: told where it is the end of a document that is looked at, or three within") {
  const testing::own_folder room;
  const std::string map = room.path + "/map", other = room.path + "/other";
  int ends_told = 0, within_told = 0, unseen = 0;
  for (const auto& [count, width] : {std::pair{20, 2}, std::pair{64, 1}, std::pair{150, 1}}) {
    const document_form form{width, 7};
    const auto another = [&, least = width == 1 ? 20u : 5000u](std::size_t at) { return least + at % 200; };
    std::vector<std::uint64_t> tokens;
    std::vector<std::string> sentence;  // where this token is another
    const std::string name = "reshard: offset map " + map + ": token ", of = " of " + other;
    for (int d = 0, looked_at = 0; d < count; ++d) {
      const bool seen = d == looked_at * count / 64;
      while (d == looked_at * count / 64) ++looked_at;
      const int size = 1 + d * 5 % 9;
      for (int i = 0; i < size; ++i) {
        const std::string at = name + std::to_string(tokens.size()) + of;
        const std::uint64_t value = another(tokens.size());
        tokens.push_back(i == size - 1 ? 7 : value);
        if (i == size - 1)
          sentence.push_back(seen && d < count - 1 ? at + " is " + std::to_string(value) +
                                                         " and ends no document; it is another file, or damaged"
                                                   : "accepted");
        else
          sentence.push_back(seen && (i == 0 || i == (size - 1) / 2 || i == size - 2)
                                 ? at + " ends a document, and is within one; it is another file, or damaged"
                                 : "accepted");
      }
    }
    build_offset_map(written(room, "tokens", bytes_of(tokens, width)), map, form);
    const offset_map whole(map);
    REQUIRE(whole.count() == count);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::vector<std::uint64_t> changed = tokens;
      changed[i] = tokens[i] != 7 ? 7 : another(i);
      written(room, "other", bytes_of(changed, width));
      CHECK(refused([&] { whole.require_of(other, form); }) == sentence[i]);
      ++(sentence[i] == "accepted" ? unseen : tokens[i] == 7 ? ends_told : within_told);
    }
  }
  CHECK(ends_told == 19 + 63 + 64);
  CHECK(within_told > 300);
  CHECK(unseen > 300);
}

TEST_CASE("what no map is built of") {
  const scratch room;
  const std::string map = (room.folder / "map").string(), three = room.file("three", "abc");
  CHECK_REFUSED(build_offset_map(three, map, {2, 0}), "three has 3 bytes, which are no whole number of tokens of 2");
  CHECK_REFUSED(build_offset_map(three, map, {3, 0}), "documents: tokens of 3 bytes; they have 1, 2, 4 or 8");
  CHECK_REFUSED(build_offset_map(three, map, {1, 256}), "documents: the delimiter 256 does not fit tokens of 1 bytes");
  CHECK(!testing::fs::exists(map + ".part"));
  CHECK_REFUSED(build_offset_map(three, three),
                "three itself, which the map would take the place of; name the map otherwise");
  testing::fs::create_hard_link(three, map + ".part");
  CHECK_REFUSED(build_offset_map(three, map), "map.part itself, which the map would take the place of");
  testing::fs::remove(map + ".part");
  CHECK(content_of(three) == "abc");
  CHECK_REFUSED(build_offset_map(three + "x", map), "threex cannot be opened: No such file or directory");
  CHECK_REFUSED(build_offset_map(three, (room.folder / "no" / "map").string()),
                "map.part cannot be opened: No such file or directory");
  const std::string sparse = room.file("sparse", "");
  if (truncate(sparse.c_str(), off_t{1} << 48) == 0)  // not every file system has so large files
    CHECK_REFUSED(build_offset_map(sparse, map),
                  "sparse has 281474976710656 tokens; an offset map takes 281474976710655");
  const std::string shrinks = room.file("shrinks", std::string(100, '\n'));
  offset_map_builder builder(shrinks, map);
  REQUIRE(truncate(shrinks.c_str(), 60) == 0);
  CHECK_REFUSED(builder.advance(), "shrinks ends at byte 60; it had 100 when its map was begun");
  room.file("blocked", "x\n");
  testing::fs::create_directory(room.folder / "folder");
  CHECK_REFUSED(build_offset_map((room.folder / "blocked").string(), (room.folder / "folder").string()),
                "folder cannot be written: ");
}

TEST_CASE("a disk that is full, and a process that may map no more") {
  const scratch room;
  const std::string source = room.file("lines", std::string(1 << 16, '\n')), map = (room.folder / "map").string();
  const auto within = [](int of, rlim_t limit, const auto& call) {
    rlimit before{};
    getrlimit(of, &before);
    const rlimit less{limit, before.rlim_max};
    setrlimit(of, &less);
    const std::string sentence = refused(call);
    setrlimit(of, &before);
    return sentence;
  };
  signal(SIGXFSZ, SIG_IGN);
  CHECK(within(RLIMIT_FSIZE, 4096, [&] { build_offset_map(source, map); }) ==
        "reshard: " + map + ".part cannot be written: File too large");
  signal(SIGXFSZ, SIG_DFL);
  build_offset_map(source, map);
  check_map(source, map, {}, std::vector<index_t>(1 << 16, 1));
  if (testing::under_sanitizer()) return;
  REQUIRE(truncate(source.c_str(), off_t{1} << 32) == 0);
  CHECK(within(RLIMIT_AS, rlim_t{1} << 28, [&] { const detail::mapped_file all(source); }) ==
        "reshard: " + source + " cannot be mapped: Cannot allocate memory");
}
