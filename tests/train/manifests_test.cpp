// Checks the sample manifest for Kubernetes against the fields of kubeflow.org/v2beta1 MPIJob (its Go types,
// pkg/apis/kubeflow/v2beta1/types.go of kubeflow/mpi-operator) and those of core/v1 pods that it uses, and then for
// consistency with itself and with our own flags. kubectl accepts JSON as well as YAML.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/io.h"
#include "ops/supervisor/command.h"
#include "tests/support/errors.h"
#include "train/gpt/gpt_options.h"

using namespace trireme;
using namespace trireme::testing;
using nlohmann::json;

namespace {

constexpr const char* manifest_path = "scripts/kubernetes/mpijob.json";

// In a schema, an object lists the allowed fields ("!" before a name: required; "*": any name), an array holds the
// schema of its items, and a string names the kind of value, or the allowed values with '|' between them.
json pod_schema() {
  const json probe_command = {{"!exec", {{"!command", json::array({"string"})}}}};
  const json container = {{"!name", "string"},
                          {"!image", "string"},
                          {"workingDir", "string"},
                          {"command", json::array({"string"})},
                          {"args", json::array({"string"})},
                          {"env", json::array({{{"!name", "string"}, {"value", "string"}}})},
                          {"lifecycle", {{"preStop", probe_command}, {"postStart", probe_command}}},
                          {"resources", {{"requests", {{"*", "quantity"}}}, {"limits", {{"*", "quantity"}}}}},
                          {"volumeMounts", json::array({{{"!name", "string"}, {"!mountPath", "string"}}})}};
  const json volume = {{"!name", "string"},
                       {"persistentVolumeClaim", {{"!claimName", "string"}, {"readOnly", "boolean"}}},
                       {"emptyDir", {{"medium", "|Memory"}, {"sizeLimit", "quantity"}}}};
  return {{"!spec",
           {{"terminationGracePeriodSeconds", "integer"},
            {"!containers", json::array({container})},
            {"volumes", json::array({volume})},
            {"nodeSelector", {{"*", "string"}}},
            {"priorityClassName", "string"}}}};
}

json mpijob_schema() {
  const json replica = {
      {"!replicas", "integer"}, {"restartPolicy", "Always|OnFailure|Never|ExitCode"}, {"!template", pod_schema()}};
  const json scheduling = {{"minAvailable", "integer"},
                           {"queue", "string"},
                           {"minResources", {{"*", "quantity"}}},
                           {"priorityClass", "string"},
                           {"scheduleTimeoutSeconds", "integer"}};
  return {{"!apiVersion", "kubeflow.org/v2beta1"},
          {"!kind", "MPIJob"},
          {"!metadata", {{"!name", "string"}, {"namespace", "string"}, {"labels", {{"*", "string"}}}}},
          {"!spec",
           {{"slotsPerWorker", "integer"},
            {"sshAuthMountPath", "string"},
            {"waitForWorkers", "boolean"},
            {"mpiImplementation", "OpenMPI|Intel"},
            {"runPolicy",
             {{"cleanPodPolicy", "All|Running|None"},
              {"ttlSecondsAfterFinished", "integer"},
              {"activeDeadlineSeconds", "integer"},
              {"backoffLimit", "integer"},
              {"schedulingPolicy", scheduling},
              {"suspend", "boolean"}}},
            {"!mpiReplicaSpecs", {{"!Launcher", replica}, {"!Worker", replica}}}}}};
}

bool is_kind(const json& value, const std::string& kind) {
  if (kind == "string") return value.is_string();
  if (kind == "integer") return value.is_number_integer();
  if (kind == "boolean") return value.is_boolean();
  if (kind == "quantity") return value.is_number() || (value.is_string() && !value.get<std::string>().empty());
  return value.is_string() && contains("|" + kind + "|", "|" + value.get<std::string>() + "|");
}

/// What is wrong with `value`, one problem per line.
std::string problems(const json& value, const json& schema, const std::string& at) {
  if (schema.is_string()) {
    const auto kind = schema.get<std::string>();
    return is_kind(value, kind) ? "" : fmt::format("{}: {}; expected {}\n", at, value.dump(), kind);
  }
  std::string found;
  if (schema.is_array()) {
    if (!value.is_array()) return at + ": expected a list\n";
    for (std::size_t i = 0; i < value.size(); ++i) found += problems(value[i], schema[0], fmt::format("{}[{}]", at, i));
    return found;
  }
  if (!value.is_object()) return at + ": expected an object\n";
  for (const auto& [key, item] : value.items()) {
    const auto field = std::find_if(schema.items().begin(), schema.items().end(), [&key = key](const auto& entry) {
      return entry.key() == "*" || entry.key() == key || entry.key() == "!" + key;
    });
    if (field == schema.items().end())
      found += fmt::format("{}: there is no field {}\n", at, key);
    else
      found += problems(item, field.value(), at + "." + key);
  }
  for (const auto& [key, item] : schema.items())
    if (key[0] == '!' && !value.contains(key.substr(1))) found += fmt::format("{}: lacks {}\n", at, key.substr(1));
  return found;
}

json manifest() { return json::parse(read_file(manifest_path)); }

const json& container(const json& job, const std::string& role) {
  return job.at("spec").at("mpiReplicaSpecs").at(role).at("template").at("spec").at("containers").at(0);
}

}  // namespace

TEST_CASE("the sample for Kubernetes is an MPIJob") {
  CHECK(problems(manifest(), mpijob_schema(), "job") == "");
  // The check can fail:
  json wrong = manifest();
  wrong["spec"]["runPolicy"]["cleanPodPolicy"] = "Some";
  wrong["spec"]["slotsPerWorkers"] = 4;
  wrong["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].erase("image");
  wrong["spec"]["mpiReplicaSpecs"]["Launcher"]["replicas"] = "1";
  const std::string found = problems(wrong, mpijob_schema(), "job");
  CHECK(contains(found, "job.spec.runPolicy.cleanPodPolicy: \"Some\"; expected All|Running|None\n"));
  CHECK(contains(found, "job.spec: there is no field slotsPerWorkers\n"));
  CHECK(contains(found, "containers[0]: lacks image\n"));
  CHECK(contains(found, "Launcher.replicas: \"1\"; expected integer\n"));
  CHECK(std::count(found.begin(), found.end(), '\n') == 4);
}

TEST_CASE("the sample for Kubernetes fits together") {
  const json job = manifest();
  const json& spec = job["spec"];
  const auto words = container(job, "Launcher")["command"].get<supervisor::Command>();
  REQUIRE(words.front() == "build/bin/run");

  // There are as many ranks as slots, and the supervisor counts as many.
  const int slots = spec["slotsPerWorker"], workers = spec["mpiReplicaSpecs"]["Worker"]["replicas"];
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const supervisor::Command command(dashes + 1, words.end());
  CHECK(supervisor::launcher_ranks(command) == slots * workers);
  CHECK(supervisor::require_elastic(command).model_ranks == 2);
  CHECK(contains(supervisor::to_string(words), fmt::format("echo $(({} * ", slots)));

  // train_gpt accepts the flags.
  GptOptions options;
  Flags flags("train_gpt", "");
  declare_all(flags, options);
  const auto program = std::find(command.begin(), command.end(), "build/bin/train_gpt");
  REQUIRE(program != command.end());
  CHECK(flags.parse({program + 1, command.end()}) == Flags::Asked::run);
  resolve(options, slots * workers);
  CHECK(options.batch_sizes().global_batch == 64);

  // --out is on a volume that both roles mount; every mount has its volume.
  for (const std::string role : {"Launcher", "Worker"}) {
    const json& pod = spec["mpiReplicaSpecs"][role]["template"]["spec"];
    CHECK(pod["terminationGracePeriodSeconds"] >= 60);
    bool out = false;
    for (const json& mount : container(job, role)["volumeMounts"]) {
      out = out || options.run.out.starts_with(mount["mountPath"].get<std::string>() + "/");
      CHECK(std::any_of(pod["volumes"].begin(), pod["volumes"].end(),
                        [&](const json& volume) { return volume["name"] == mount["name"]; }));
    }
    CHECK(out);
  }
  // After exit code 75 the launcher must be started again.
  CHECK(spec["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] == "OnFailure");
}
