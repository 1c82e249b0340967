// SPDX-License-Identifier: Apache-2.0
//
// Models of random config.json files of every architecture against the oracle of trainers' layouts: all tensors in
// Megatron's order, with their shapes and cuts; the pieces of each with the names, shapes and rows that a Hugging Face
// checkpoint has; and what each of those names means.
#include <doctest/doctest.h>

#include "random_keys_model.hpp"
#include "trainer_names.hpp"

#include <map>
#include <string>
#include <vector>

#include <reshard/io/hf_config.hpp>
#include <reshard/model/hf_names.hpp>
#include <reshard/model/require_model.hpp>

#include "../support/dice.hpp"

namespace {

namespace trainer = oracle::trainer;
using namespace reshard;

// The tensors of a model in the framework's order: before the layers, layer by layer, after them.
std::vector<tensor_id> in_order(const model& m) {
  std::vector<tensor_id> list;
  int f = 0;
  const auto add = [&](int which, index_t member) {
    for (index_t e = 0; e < m[which].extent[axis_of::expert]; ++e) list.push_back({which, member, e});
  };
  for (; m[f].place != home::layers; ++f) add(f, 0);
  int after = f;
  while (m[after].place == home::layers) ++after;
  for (index_t layer = 0; layer < m.shape.layers; ++layer)
    for (int of_layer = f; of_layer < after; ++of_layer)
      if (const layer_set& set = m.layers_of(of_layer); set.contains(layer)) add(of_layer, set.members_below(layer));
  for (; after < m.families; ++after)
    if (m.counts(after)) add(after, 0);
  return list;
}

trainer::numbers shape_of(const family& f, const box<3>& piece) {
  const index_t parts = piece.dim[0].size(), rows = piece.dim[1].size(), columns = piece.dim[2].size();
  return f.vector() ? trainer::numbers{parts * columns} : trainer::numbers{parts * rows, columns};
}

trainer::cut cut_of(const family& f) {
  if (f.tensor_axis == axis_of::none) return trainer::cut::whole;
  if (f.tensor_axis == axis_of::column && !f.vector()) return trainer::cut::columns;
  return f.fused == fused_as::gate_up ? trainer::cut::gate_and_up : trainer::cut::rows;
}

// Which rows of the whole tensor a piece is.
trainer::numbers rows_of(const family& f, const box<3>& piece) {
  const int inner = f.inner_axis();
  trainer::numbers rows;
  for (index_t part = piece.dim[0].begin; part < piece.dim[0].end; ++part)
    for (index_t x = piece.dim[inner - 2].begin; x < piece.dim[inner - 2].end; ++x)
      rows.push_back(part * f.extent[inner] + x);
  return rows;
}

void check_megatron(const model& m, const trainer::model& oracle, const std::vector<tensor_id>& ids) {
  const std::vector<trainer::tensor> expected = trainer::megatron_tensors(oracle, trainer::parse(oracle, ""));
  REQUIRE(ids.size() == expected.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const family& f = m[ids[i].family];
    CAPTURE(expected[i].name);
    REQUIRE(m.tensor(ids[i]) == expected[i].name);
    CHECK(shape_of(f, {{{0, f.extent[2]}, {0, f.extent[3]}, {0, f.extent[4]}}}) == expected[i].shape);
    CHECK(cut_of(f) == expected[i].how);
    CHECK((f.kind == tensor_kind::parameter) == expected[i].parameter);
    const bool words = expected[i].name.starts_with("embedding.word") || expected[i].name.starts_with("output_layer");
    CHECK((f.padded == padded_as::vocabulary) == words);
    CHECK((f.mesh == mesh_kind::expert) == (expected[i].expert >= 0));
  }
}

void check_hf(const model& m, const trainer::model& oracle, const std::vector<tensor_id>& ids) {
  const std::vector<trainer::tensor> expected = trainer::tensors(oracle, trainer::parse(oracle, "shard=rows,names=hf"));
  const hf_names names(m);
  std::size_t i = 0;
  for (const tensor_id& id : ids)
    for (int p = 0; p < pieces(m[id.family]); ++p, ++i) {
      REQUIRE(i < expected.size());
      CAPTURE(expected[i].name);
      const box<3> piece = piece_box(m, id.family, p);
      CHECK(names[{id, p}] == expected[i].name);
      CHECK(shape_of(m[id.family], piece) == expected[i].shape);
      CHECK(rows_of(m[id.family], piece) == expected[i].family_rows);
      const auto meant = names.find(expected[i].name);
      REQUIRE(meant.has_value());
      CHECK(*meant == tensor_piece{id, p});
    }
  CHECK(i == expected.size());
  if (!m[0].tied_name.empty()) CHECK(names.find("lm_head.weight") == tensor_piece{{0, 0, 0}, 0});
}

}  // namespace

TEST_CASE("the tensors of random models, in order, under both names") {
  trainer::key_dice dice(testing::seed());
  std::map<std::string, int> models;
  int named = 0;
  for (int i = 0; i < 3000; ++i) {
    trainer::feature_set wanted;
    if (i % 3 == 0) wanted.insert("predictions");
    if (i % 4 == 0) wanted.insert("tied");
    const nlohmann::json config = trainer::random_config(dice, wanted);
    const std::string text = config.dump();
    CAPTURE(text);
    const trainer::model oracle = trainer::read_model(config);
    const model m = io::parse_config(text, "random");
    require_model(m);
    const std::vector<tensor_id> ids = in_order(m);
    check_megatron(m, oracle, ids);
    CHECK(has_hf_names(m) == (trainer::why_illegal(oracle, "shard=rows,names=hf").empty()));
    if (has_hf_names(m)) check_hf(m, oracle, ids), ++named;
    ++models[oracle.architecture];
  }
  CHECK(models.size() == 8);
  CHECK(named > 2000);
}
