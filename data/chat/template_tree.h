// A chat template as a tree: what the parser makes and the renderer walks.
// Read next: data/chat/template_parser.h, data/chat/template_render.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/template_value.h"

namespace trireme::chat {

struct Expression;
/// A part of a larger expression, or null.
using ExpressionPtr = std::unique_ptr<Expression>;

/// The arguments of a call, a filter or a test.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

/// What can be computed, with its operands.
struct Expression {
  /// Which one; with the members that it uses.
  enum class Kind : std::uint8_t {
    literal,      ///< value
    name,         ///< text
    list,         ///< parts; text "tuple": in round brackets
    dict,         ///< parts: key, value, key, value, ...
    attribute,    ///< parts[0] . text
    item,         ///< parts[0] [ parts[1] ]
    slice,        ///< parts[0] [ parts[1] : parts[2] : parts[3] ], any of which may be null
    call,         ///< parts[0] ( arguments )
    filter,       ///< parts[0] | text ( arguments )
    test,         ///< parts[0] is text ( arguments )
    negation,     ///< not parts[0]
    minus,        ///< - parts[0]
    conjunction,  ///< parts[0] and parts[1]
    disjunction,  ///< parts[0] or parts[1]
    condition,    ///< parts[1] if parts[0] else parts[2], which may be null
    binary,       ///< parts[0] text parts[1]: + - * / // % ** ~
    compare,      ///< parts[0] operators[0] parts[1] operators[1] parts[2] ..: == != < <= > >= in, not in
  };
  Kind kind;
  int line;
  std::string text = {};
  Value value = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::string> operators = {};
  CallArguments arguments = {};
};

struct Statement;
/// Statements, one after the other.
using Block = std::vector<Statement>;

/// A parameter of a macro.
struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  ///< may be null
};

/// What a template does at one place.
struct Statement {
  /// Which one; with the members that it uses.
  enum class Kind : std::uint8_t {
    text,    ///< text
    print,   ///< {{ expression }}
    loop,    ///< {% for targets in expression if condition %} body {% else %} otherwise
    choice,  ///< {% if expression %} body {% else %} otherwise (also for elif)
    assign,  ///< {% set targets = expression %}, or without an expression the text of body
    macro,   ///< {% macro text(parameters) %} body
    group,   ///< {% generation %} body: by the assistant
    leave,   ///< {% break %}
    next,    ///< {% continue %}
  };
  Kind kind;
  int line;
  std::string text = {};
  ExpressionPtr expression = {}, condition = {};
  std::vector<std::string> targets = {};  ///< of a loop or an assignment; "ns.x" is a member of a namespace
  std::vector<Parameter> parameters = {};
  Block body = {}, otherwise = {};
};

}  // namespace trireme::chat
