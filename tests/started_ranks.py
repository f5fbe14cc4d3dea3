"""The ranks of a command, started without torchrun from a process that has imported the libraries."""

from torch.distributed import TCPStore


class Ranks:
    """Starts the ranks of a command as torchrun does, and again as for --max-restarts, forked from a warm process."""

    def __init__(self, warm, folder):
        self.warm, self.folder, self.started, self.store = warm, folder, 0, None

    def start(self, *commands, folders=(None, None, None, None), more=None):
        """Start a command for each rank, in a folder; the process ids."""
        self.store = self.store or TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.store.port), "WORLD_SIZE": str(len(commands))}
        shared |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(self.started)}
        shared |= {"COLLAPSE_HOME": f"{self.folder}/home", **(more or {})}
        self.started += 1
        return [
            self.warm.start(
                words,
                self.log(rank),
                out=self.log(rank, "out"),
                environment=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                folder=folders[rank],
            )
            for rank, words in enumerate(commands)
        ]

    def run(self, *commands, **options):
        """Run a command for each rank; its exit codes."""
        return [self.warm.wait(pid) for pid in self.start(*commands, **options)]

    def log(self, rank, kind="err"):
        return self.folder / f"{self.started}-{rank}.{kind}"

    def said(self, rank=0, kind="err"):
        return self.log(rank, kind).read_text()
