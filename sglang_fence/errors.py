"""The error tree: everything that this project raises on purpose.

::

    FenceError                      base: catch this to catch all of ours
    ├── UserError                   something the user gave is wrong; the command line prints one line, exit 2
    │   ├── ConfigError             a switch, a flag, or a combination of them
    │   ├── ModelError              a model that is missing or not of a kind that is served
    │   ├── PromptError             a prompt, or a file of prompts
    │   ├── CapacityError           a pool too small for even one request
    │   ├── CostTableError          a cost table of the simulated device
    │   ├── ProgramError            a stream program
    │   ├── DumpError               a file that isn't a readable dump of the flight recorder
    │   └── DeviceUnavailableError  the device asked for is not here
    └── InternalError               a rule of the contract was broken by code, ours or a backend's
        ├── ContractError           a declaration or publication that the contract forbids
        ├── CaptureError            graph capture used wrongly
        └── UndeclaredAccessError   a kernel touched a shared buffer that it did not declare

A message names the thing and the mend: what was found, where, and what to write instead.
"""

from __future__ import annotations


class FenceError(Exception):
    """Base of every error that this project raises on purpose."""


class UserError(FenceError):
    """Something the user gave is wrong. Shown as one line, without a traceback; exit status 2."""


class ConfigError(UserError):
    """A switch, a flag, or a combination of flags that can't be served."""


class ModelError(UserError):
    """A model that is missing, unreadable, or not of a kind that the runtime serves."""


class PromptError(UserError):
    """A prompt, or a file of prompts, that can't be served."""


class CapacityError(UserError):
    """A memory pool that could never hold even one request."""


class CostTableError(UserError):
    """A cost table with an unknown name, a negative or non-numeric time, or broken JSON."""


class ProgramError(UserError):
    """A file that isn't a stream program. The message says which key, and where."""


class DumpError(UserError):
    """A file that isn't a dump of the flight recorder, or not one that can be read."""


class DeviceUnavailableError(UserError):
    """The device asked for isn't available on this machine."""


class InternalError(FenceError):
    """A rule of the contract was broken by code. Never the user's fault."""


class ContractError(InternalError):
    """A declaration or publication that the contract forbids (design, section 3)."""


class CaptureError(InternalError):
    """Graph capture used wrongly: nested, unjoined, or replayed before it ended."""


class UndeclaredAccessError(InternalError):
    """A kernel body touched a shared buffer that its launch did not declare.

    Raised by the simulated device, so that what the hazard checker sees is what the kernels do.
    """
