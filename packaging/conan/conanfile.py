"""Conan 2 recipe of Trireme as a static library.

    conan create packaging/conan --build=missing -c tools.system.package_manager:mode=install

Libraries of others are Debian's and Ubuntu's packages, which Conan installs with apt in that mode. A project that
requires trireme/0.1.0 then writes find_package(Trireme CONFIG): see docs/installing.md.
"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt

PACKAGES = ["libfmt-dev", "nlohmann-json3-dev", "libpcre2-dev", "libevent-dev"]  # of the library's users
TO_BUILD = ["libeigen3-dev", "libxxhash-dev", "libprotozero-dev", "pkg-config"]


class Trireme(ConanFile):
    name = "trireme"
    license = "Apache-2.0"
    description = "Deep learning in C++20 with data, tensor, pipeline, sequence, context and expert parallelism"
    settings = "os", "compiler", "build_type", "arch"
    package_type = "static-library"
    options = {"arch": ["ANY"], "mpi": [True, False], "fPIC": [True, False]}
    default_options = {"arch": "native", "mpi": False, "fPIC": True}  # arch: TRIREME_ARCH, as -march names it

    @property
    def root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        lists = load(self, os.path.join(self.root, "CMakeLists.txt"))
        self.version = re.search(r"project\(trireme VERSION ([0-9.]+)", lists)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "CHANGELOG.md", "cmake/*", "core/*", "cuda/*", "data/*",
                        "autograd/*", "parallel/*", "nn/*", "optim/*", "models/*", "train/*"):
            copy(self, pattern, self.root, self.export_sources_folder)

    def system_requirements(self):
        mpi = ["libopenmpi-dev"] if self.options.mpi else []
        Apt(self).install(PACKAGES + TO_BUILD + mpi, check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["TRIREME_LIBRARY_ONLY"] = True
        toolchain.cache_variables["TRIREME_ARCH"] = str(self.options.arch)
        toolchain.cache_variables["TRIREME_MPI"] = bool(self.options.mpi)
        toolchain.cache_variables["TRIREME_CUDA"] = "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # Users take the config file that CMake has installed, which names all components.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "Trireme")]
