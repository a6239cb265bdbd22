#include "data/byte_trie.h"

namespace trireme {

void ByteTrie::grow() {
  std::vector<Edge> old(2 * edges_.size());
  old.swap(edges_);
  for (const Edge& edge : old)
    if (edge.from >= 0) edges_[slot_of(edge.from, edge.byte)] = edge;
}

void ByteTrie::add(std::string_view text, std::int32_t number) {
  Step* to = nullptr;
  std::int32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (7 * static_cast<std::size_t>(nodes_) > 4 * edges_.size()) grow();
    if (node == 0) {
      to = &first_[byte];
    } else {
      Edge& edge = edges_[slot_of(node, byte)];
      edge.from = node;
      edge.byte = byte;
      to = &edge.to;
    }
    if (to->node < 0) to->node = nodes_++;
    node = to->node;
  }
  to->number = number;
}

std::size_t ByteTrie::longest(std::string_view text, std::int32_t& number) const {
  std::size_t length = 0;
  Step at;
  at.node = 0;
  for (std::size_t end = 0; end < text.size();) {
    at = step(at.node, static_cast<unsigned char>(text[end++]));
    if (at.node < 0) break;
    if (at.number < 0) continue;
    length = end;
    number = at.number;
  }
  return length;
}

}  // namespace trireme
