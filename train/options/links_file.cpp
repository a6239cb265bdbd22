#include "train/options/links_file.h"

#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/extents.h"
#include "train/options/links_fields.h"

namespace trireme {
namespace {

using nlohmann::json;
using Topology = comm::Links::Topology;

comm::Link link(const JsonFields& fields, const json& object, const std::string& what) {
  comm::Link link;
  fields.read(
      object, "\"" + what + "\"",
      {{"latency_us", [&](const json& v) { link.latency = 1e-6 * fields.number(v, "latency_us", 0, 1e9); }},
       {"gb_per_s", [&](const json& v) { link.seconds_per_byte = 1e-9 / fields.number(v, "gb_per_s", 1e-6, 1e6); }}},
      {"latency_us", "gb_per_s"});
  return link;
}

void check_ranks(const JsonFields& fields, const comm::Links& links, int ranks) {
  if (ranks % links.ranks_per_node != 0)
    fields.refuse("\"ranks_per_node\" is {1}, and does not divide the number of ranks, {0}; expected a divisor of {0}",
                  ranks, links.ranks_per_node);
  const int nodes = ranks / links.ranks_per_node;
  const std::optional<std::int64_t> places =
      product_of(std::vector<std::int64_t>(links.torus.begin(), links.torus.end()));
  if (links.topology == Topology::torus && places != nodes)
    fields.refuse("\"torus\" has {} nodes; expected {}, that is {} / {}: the ranks over \"ranks_per_node\"",
                  places ? std::to_string(*places) : "too many", nodes, ranks, links.ranks_per_node);
}

}  // namespace

JsonFields::Readers LinksFields::readers() {
  const JsonFields& f = fields_;
  return {
      {"ranks_per_node", [&](const json& v) { links_.ranks_per_node = f.whole(v, "ranks_per_node"); }},
      {"within", [&](const json& v) { links_.within = link(f, v, "within"); }},
      {"between", [&](const json& v) { links_.between = link(f, v, "between"); }},
      {"topology", [&](const json& v) { topology_ = f.text(v, "topology", "fat-tree, rail or torus"); }},
      {"oversubscription", [&](const json& v) { links_.oversubscription = f.number(v, "oversubscription", 1, 1e6); }},
      {"torus", [&](const json& v) {
         if (!v.is_array() || v.empty()) f.refuse("\"torus\" is {}; expected a list of extents", shown(v));
         for (const json& extent : v) links_.torus.push_back(f.whole(extent, "torus"));
       }}};
}

comm::Links LinksFields::links() {
  const std::map<std::string, Topology> known = {
      {"fat-tree", Topology::fat_tree}, {"rail", Topology::rail}, {"torus", Topology::torus}};
  const auto found = known.find(topology_);
  if (found == known.end()) fields_.refuse("\"topology\" is \"{}\"; expected fat-tree, rail or torus", topology_);
  links_.topology = found->second;
  if ((links_.topology == Topology::torus) != !links_.torus.empty())
    fields_.refuse("a torus has its extents in \"torus\", and nothing else has; expected both or neither");
  if (links_.oversubscription > 1 && links_.topology != Topology::fat_tree)
    fields_.refuse("\"oversubscription\" is of a fat tree; expected \"topology\": \"fat-tree\"");
  return links_;
}

comm::Links parse_links(std::string_view text, const std::filesystem::path& path, int ranks) {
  const JsonFields fields("--links", path);
  LinksFields reader(fields);
  fields.read(fields.root(text), "the file", reader.readers(), LinksFields::needed());
  const comm::Links links = reader.links();
  check_ranks(fields, links, ranks);
  return links;
}

comm::Links read_links(const std::filesystem::path& path, int ranks) {
  return parse_links(JsonFields("--links", path).text(), path, ranks);
}

}  // namespace trireme
