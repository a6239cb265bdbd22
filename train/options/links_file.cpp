#include "train/options/links_file.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/io.h"
#include "data/json.h"

namespace trireme {
namespace {

using nlohmann::json;
using Topology = comm::Links::Topology;

class LinksFile {
 public:
  explicit LinksFile(const std::filesystem::path& path) : path_(path) {}

  comm::Links parse(std::string_view text, int ranks) const {
    comm::Links links;
    std::string topology = "fat-tree";
    fields(
        root(text), "the file",
        {{"ranks_per_node", [&](const json& v) { links.ranks_per_node = whole(v, "ranks_per_node"); }},
         {"within", [&](const json& v) { links.within = link(v, "within"); }},
         {"between", [&](const json& v) { links.between = link(v, "between"); }},
         {"topology",
          [&](const json& v) {
            if (!v.is_string()) refuse("\"topology\" is {}; expected fat-tree, rail or torus", shown(v));
            topology = v.get<std::string>();
          }},
         {"oversubscription", [&](const json& v) { links.oversubscription = number(v, "oversubscription", 1, 1e6); }},
         {"torus",
          [&](const json& v) {
            if (!v.is_array() || v.empty()) refuse("\"torus\" is {}; expected a list of extents", shown(v));
            for (const json& extent : v) links.torus.push_back(whole(extent, "torus"));
          }}},
        {"ranks_per_node", "within", "between"});
    choose(topology, links);
    check(links, ranks);
    return links;
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail(ExitCode::usage, "--links", "{}: {}; correct it, or drop --links", path_.string(),
         fmt::format(text, std::forward<Args>(args)...));
  }

  json root(std::string_view text) const {
    try {
      return parse_json(text, path_);
    } catch (const Error& error) { fail(ExitCode::usage, "--links", "{}", error.reason()); }
  }

  using Readers = std::map<std::string, std::function<void(const json&)>>;
  void fields(const json& object, const std::string& what, const Readers& readers,
              const std::vector<std::string>& needed) const {
    if (!object.is_object()) refuse("{} is {}; expected an object", what, shown(object));
    for (const auto& [key, value] : object.items()) {
      const auto reader = readers.find(key);
      if (reader == readers.end()) {
        std::string known;
        for (const auto& [name, read] : readers) known += (known.empty() ? "" : ", ") + name;
        refuse("{} has a field \"{}\"; expected only {}", what, key, known);
      }
      reader->second(value);
    }
    for (const std::string& key : needed)
      if (!object.contains(key)) refuse("{} has no \"{}\"; expected it", what, key);
  }

  double number(const json& value, const std::string& what, double least, double most) const {
    if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
      refuse("\"{}\" is {}; expected a number from {} to {}", what, shown(value), least, most);
    return value.get<double>();
  }
  int whole(const json& value, const std::string& what) const {
    constexpr int most = 1 << 20;
    if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > most)
      refuse("\"{}\" has {}; expected whole numbers from 1 to {}", what, shown(value), most);
    return value.get<int>();
  }

  comm::Link link(const json& object, const std::string& what) const {
    comm::Link link;
    fields(object, "\"" + what + "\"",
           {{"latency_us", [&](const json& v) { link.latency = 1e-6 * number(v, "latency_us", 0, 1e9); }},
            {"gb_per_s", [&](const json& v) { link.seconds_per_byte = 1e-9 / number(v, "gb_per_s", 1e-6, 1e6); }}},
           {"latency_us", "gb_per_s"});
    return link;
  }

  void choose(const std::string& topology, comm::Links& links) const {
    const std::map<std::string, Topology> known = {
        {"fat-tree", Topology::fat_tree}, {"rail", Topology::rail}, {"torus", Topology::torus}};
    const auto found = known.find(topology);
    if (found == known.end()) refuse("\"topology\" is \"{}\"; expected fat-tree, rail or torus", topology);
    links.topology = found->second;
  }

  void check(const comm::Links& links, int ranks) const {
    const bool torus = links.topology == Topology::torus;
    if (torus != !links.torus.empty())
      refuse("a torus has its extents in \"torus\", and nothing else has; expected both or neither");
    if (links.oversubscription > 1 && links.topology != Topology::fat_tree)
      refuse("\"oversubscription\" is of a fat tree; expected \"topology\": \"fat-tree\"");
    if (ranks % links.ranks_per_node != 0)
      refuse("{} ranks are no whole number of nodes of {}; expected a divisor of {} in \"ranks_per_node\"", ranks,
             links.ranks_per_node, ranks);
    const std::int64_t nodes = ranks / links.ranks_per_node;
    const std::int64_t places =
        std::accumulate(links.torus.begin(), links.torus.end(), std::int64_t{1}, std::multiplies<>());
    if (torus && places != nodes)
      refuse("the torus has {} nodes, and {} ranks are {}; expected as many", places, ranks, nodes);
  }

  const std::filesystem::path& path_;
};

}  // namespace

comm::Links parse_links(std::string_view text, const std::filesystem::path& path, int ranks) {
  return LinksFile(path).parse(text, ranks);
}

comm::Links read_links(const std::filesystem::path& path, int ranks) {
  std::string text;
  try {
    text = read_file(path, read_limits::configuration);
  } catch (const Error& error) { fail(ExitCode::usage, "--links", "{}", error.reason()); }
  return parse_links(text, path, ranks);
}

}  // namespace trireme
