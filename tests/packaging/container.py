#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of plugin/packaging/container that no schema has: that mounts, paths and images fit together.

usage: container.py check FILE.yaml VERSION        prints what is wrong, nothing if all is well
       container.py commands FILE.yaml IMAGE NODE  prints the command of each container with our image: the program as a path
                                                   below IMAGE, its arguments, which are paths, as those of the node, below NODE
"""
import itertools
import pathlib
import sys

import yaml


def with_pods(documents):
    """Returns the document that makes pods."""
    return next(d for d in documents if "template" in d["spec"])


def pod_of(document):
    """Returns the pod of a DaemonSet or Job."""
    return document["spec"]["template"]["spec"]


def containers_of(pod):
    """Returns all containers, init containers first."""
    return pod.get("initContainers", []) + pod["containers"]


def mounts_of(pod, container):
    """Returns a dictionary from mount point to the volume and whether it is writable."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    return {m["mountPath"]: (volumes.get(m["name"]), not m.get("readOnly", False)) for m in container.get("volumeMounts", [])}


def mount_of(mounts, path):
    """Returns the mount point that contains a path, or None."""
    return next((at for at in mounts if path == at or path.startswith(at + "/")), None)


def is_ours(container):
    """True if it runs the image that our Dockerfile makes."""
    return container["image"].split(":")[0] == "nccl-net-pvrdma"


def faults(document, version):
    """Yields sentences about mounts, paths and images that do not fit together."""
    pod = pod_of(document)
    if document["kind"] == "DaemonSet" and document["spec"]["selector"]["matchLabels"] != document["spec"]["template"]["metadata"]["labels"]:
        yield "the selector does not match the pod's labels"
    installed = {}
    for container in containers_of(pod):
        name, mounts = container["name"], mounts_of(pod, container)
        for at, (volume, _) in mounts.items():
            if volume is None:
                yield f"{name}: what is mounted at {at} is no volume of the pod"
        if ":" not in container["image"] or container["image"].endswith(":latest"):
            yield f"{name}: the image {container['image']} has no version"
        if is_ours(container):
            if container["image"].split(":")[1] != version:
                yield f"{name}: the image {container['image']} is not of version {version}"
            for path in container["command"][1:]:
                at = mount_of(mounts, path)
                if at is None or not mounts[at][1]:
                    yield f"{name}: {path} is not in a volume that can be written to"
                elif container["command"][0].endswith("/install.sh"):
                    installed[mounts[at][0]["name"]] = path[len(at) :]
        for variable in container.get("env", []):
            if variable["name"] == "NCCL_NET_PLUGIN":
                at = mount_of(mounts, variable["value"])
                below = installed.get(mounts[at][0]["name"]) if at else None
                if below is None or variable["value"] != f"{at}{below}/libnccl-net-pvrdma.so":
                    yield f"{name}: NCCL_NET_PLUGIN={variable['value']} is not what an init container installs"
    if not installed:
        yield "no init container installs the plugin"


def meeting_faults(documents):
    """Yields sentences about pods of a job that cannot find each other by the name that a headless service gives the first."""
    job = with_pods(documents)
    pod = pod_of(job)
    meet = [w.split("=")[1] for c in pod["containers"] for w in c.get("command", []) if w.startswith("--rdzv_endpoint=")]
    if not meet:
        return
    service = next((d for d in documents if d["kind"] == "Service" and d["metadata"]["name"] == pod.get("subdomain")), None)
    if job["spec"].get("completionMode") != "Indexed" or not service or service["spec"].get("clusterIP") != "None":
        yield "the pods have no names: that takes completionMode Indexed and a headless service of the name in subdomain"
    elif service["spec"]["selector"] != job["spec"]["template"]["metadata"]["labels"]:
        yield "the service does not select the job's pods"
    elif not meet[0].startswith(f"{job['metadata']['name']}-0.{pod['subdomain']}:"):
        yield f"{meet[0]} is not the first pod's name"
    words = [w for c in pod["containers"] for w in c.get("command", [])]
    if f"--nnodes={job['spec'].get('completions')}" not in words or job["spec"].get("parallelism") != job["spec"].get("completions"):
        yield "completions, parallelism and --nnodes differ"


def commands(document, image, node):
    """Yields the commands of containers with our image, with the paths of image and node."""
    pod = pod_of(document)
    for container in containers_of(pod):
        if not is_ours(container):
            continue
        mounts = mounts_of(pod, container)
        words = [f"{image}{container['command'][0]}"]
        for path in container["command"][1:]:
            at = mount_of(mounts, path)
            volume = mounts[at][0]
            where = volume.get("hostPath", {}).get("path", f"/volumes/{volume['name']}")
            words.append(f"{node}{where}{path[len(at):]}")
        yield words


def main():
    """Prints the faults or the commands."""
    if len(sys.argv) < 4 or sys.argv[1] not in ("check", "commands"):
        sys.exit(__doc__.strip())
    documents = list(yaml.safe_load_all(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")))
    if sys.argv[1] == "check":
        for fault in itertools.chain(faults(with_pods(documents), sys.argv[3]), meeting_faults(documents)):
            print(fault)
    else:
        for words in commands(with_pods(documents), *sys.argv[3:]):
            print("\t".join(words))


if __name__ == "__main__":
    main()
