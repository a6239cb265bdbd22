#!/usr/bin/env python3
"""Debian's Prometheus scrapes a run, and promtool checks the page, the alert rules and their tests. The dashboard may
only ask for metrics that the page has. Usage: prometheus_test.py build/bin/train_gpt"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

import support

for program in ("prometheus", "promtool"):
    if shutil.which(program) is None:
        support.skip(f"{program} is not installed (Debian: apt-get install prometheus)")

MONITORING = os.path.join(support.ROOT, "scripts", "monitoring")
NAME = re.compile(r"\btrireme_[a-z_]+")
# Only in f16, and after a save.
ABSENT = {"trireme_skipped_steps", "trireme_loss_scale"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def eventually(what, f, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            result = f()
            if result:
                return result
        except OSError:
            result = "no answer"
        assert time.monotonic() < end, f"{what}: {result}"
        time.sleep(0.2)


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def promtool(*arguments, text=None):
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"promtool {arguments}: {done.stdout}{done.stderr}"


def check_dashboard(page):
    known = set(NAME.findall(page)) | ABSENT
    with open(os.path.join(MONITORING, "grafana.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 10
    with open(os.path.join(MONITORING, "alerts.yml"), encoding="utf-8") as file:
        expressions.append(re.sub(r"#.*", "", file.read()))
    unknown = {name for expression in expressions for name in NAME.findall(expression)} - known
    assert not unknown, f"no page has {unknown}"
    return [e.replace("$instance", ".*") for e in expressions[:-1]]


def main():
    promtool("check", "rules", os.path.join(MONITORING, "alerts.yml"))
    promtool("test", "rules", os.path.join(MONITORING, "alerts_test.yml"))
    with tempfile.TemporaryDirectory() as folder:
        port, own_port = free_port(), free_port()
        run = subprocess.Popen(support.command(os.path.join(folder, "run"), "--steps", "1000000", "--mesh", "dp=2",
                                               "--global-batch", "8", "--checkpoint-every", "100", "--keep", "1",
                                               "--eval-every", "50", "--prometheus", f"127.0.0.1:{port}"),
                               stdout=subprocess.DEVNULL)
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                       "rule_files": [os.path.join(MONITORING, "alerts.yml")],
                       "scrape_configs": [{"job_name": "trireme",
                                           "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}, file)
        server = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                                   f"--web.listen-address=127.0.0.1:{own_port}", "--log.level=error"])
        try:
            page_url = f"http://127.0.0.1:{port}/metrics"
            eventually("a checkpoint on the page", lambda: "trireme_checkpoint_step" in get(page_url))
            page = get(page_url)
            promtool("check", "metrics", text=page)

            def query(expression):
                url = f"http://127.0.0.1:{own_port}/api/v1/query?query=" + urllib.parse.quote(expression)
                answer = json.loads(get(url))
                assert answer["status"] == "success", answer
                return answer["data"]["result"]

            expressions = check_dashboard(page)
            first = float(eventually("a scrape", lambda: query("trireme_step"))[0]["value"][1])
            eventually("a later step", lambda: float(query("trireme_step")[0]["value"][1]) > first)
            assert query("trireme_world_size")[0]["value"][1] == "2"
            assert {r["metric"]["rank"] for r in query("trireme_rank_working_seconds")} == {"0", "1"}
            assert query("trireme_info")[0]["metric"]["mesh"].startswith("dp=2,")
            for expression in expressions:
                query(expression)
            groups = json.loads(get(f"http://127.0.0.1:{own_port}/api/v1/rules"))["data"]["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            assert len(rules) == 6 and all(not rule.get("lastError") for rule in rules), rules
        finally:
            server.terminate()
            run.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
            assert run.wait(60) == 75  # told to leave, and not because a client went away
    print("prometheus reads the page")


if __name__ == "__main__":
    main()
