# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the base of an image out of this machine's own Debian: its required packages and apt, as they are configured here.

usage: base.py FOLDER    a folder that does not exist; it gets what debootstrap's smallest variant has, without documents
"""
import os
import re
import shutil
import subprocess
import sys

INFO = "/var/lib/dpkg/info"
SKIP = re.compile(r"/usr/share/(doc|man|locale|info|lintian|bug)(/|$)")
# Links and lists that the packages' set-up scripts make. The packages do not list them.
MADE = """/etc/passwd /etc/group /etc/shadow /etc/gshadow /etc/nsswitch.conf /etc/ld.so.conf /etc/ld.so.cache /etc/debian_version
 /etc/alternatives/awk /usr/bin/awk /etc/alternatives/which /usr/bin/which /bin /sbin /lib /lib64""".split()


def wanted(packages):
    """Names of the packages that are required, apt, and what these depend on."""
    by_name = {}
    for name, fields in packages.items():
        by_name[name] = name
        for provided in re.split(r",\s*", fields.get("Provides", "")):
            by_name.setdefault(provided.split(" ")[0], name)
    todo = ["apt"] + [n for n, f in packages.items() if f.get("Essential") == "yes"]
    found = set()
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        fields = packages[name]
        for group in re.split(r",\s*", fields.get("Depends", "") + ", " + fields.get("Pre-Depends", "")):
            names = [re.split(r"[ :(]", n.strip())[0] for n in group.split("|")]
            todo += [by_name[n] for n in names if n in by_name][:1]
    return found


def copy(path, root):
    """Copies a file, link or folder to where it really is, so that /bin/sh goes to /usr/bin as it does here."""
    real = path if path in MADE else os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if not os.path.lexists(real):
        return
    to = root + real
    if os.path.lexists(to):
        return
    if os.path.isdir(real) and not os.path.islink(real):
        os.makedirs(to, exist_ok=True)
        shutil.copystat(real, to)
        return
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy2(real, to, follow_symlinks=False)


def main():
    root = sys.argv[1]
    with open("/var/lib/dpkg/status", encoding="utf-8") as file:
        stanzas = file.read().split("\n\n")
    packages, text = {}, {}
    for stanza in stanzas:
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.M))
        if fields.get("Status", "").endswith(" installed"):
            packages[fields["Package"]] = fields
            text[fields["Package"]] = stanza
    names = wanted(packages)
    os.makedirs(root + INFO)
    for folder in "/tmp /var/tmp /run /proc /sys /dev /root /opt /mnt /srv /etc/apt /var/lib/dpkg/updates /var/lib/dpkg/alternatives".split():
        os.makedirs(root + folder, exist_ok=True)
    os.chmod(root + "/tmp", 0o1777)
    os.chmod(root + "/var/tmp", 0o1777)
    for path in MADE:
        copy(path, root)
    for name in sorted(names):
        listed = subprocess.run(["dpkg-query", "-L", name], capture_output=True, text=True, check=True).stdout
        for path in listed.splitlines():
            if path.startswith("/") and path != "/." and not SKIP.match(path):
                copy(path, root)
    for name in os.listdir(INFO):
        if name == "format" or name.rsplit(".", 1)[0].split(":")[0] in names:
            shutil.copy2(f"{INFO}/{name}", f"{root}{INFO}/{name}")
    with open(root + "/var/lib/dpkg/status", "w", encoding="utf-8") as file:
        file.writelines(text[name].strip("\n") + "\n\n" for name in sorted(names))


main()
