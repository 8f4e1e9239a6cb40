"""Ask for work: a run of a dataset, a job once more, an end to one. The same rows as the command line
puts.
"""

from litestar.handlers import HTTPRouteHandler

from kfm.cli.jobs import Wish, asked, cancelled, retried_one
from kfm.console.act import Doing, Done, acts
from kfm.model import INGEST, UsageError, check_dataset_id
from kfm.reader.door import Hidden

__all__ = ["ROUTES"]


@acts("/datasets/{dataset_id:str}/run", "ask for a run")
def run(doing: Doing) -> Done:
    """Bring a dataset up to date, as soon as a worker can."""
    dataset_id = _registered(doing)
    wish = Wish(INGEST, dataset_id, partition=doing.form.text("partition", 200))
    put = asked(doing.call, wish, doing.by)
    return Done(done="asked", at="/queue", dataset_id=dataset_id, what=put.job.job_id)


@acts("/queue/{job_id:str}/retry", "retry a job")
def retry(doing: Doing) -> Done:
    """Try a job again that was put aside."""
    job = retried_one(doing.call, _job_id(doing)).job
    return Done(done="retried", at="/queue", dataset_id=job.dataset_id, what=job.job_id)


@acts("/queue/{job_id:str}/cancel", "cancel a job")
def cancel(doing: Doing) -> Done:
    """End a job that waits, or tell one that is at work to stop."""
    job = cancelled(doing.call, _job_id(doing)).job
    return Done(done="cancelled", at="/queue", dataset_id=job.dataset_id, what=job.job_id)


def _registered(doing: Doing) -> str:
    dataset_id = doing.parts["dataset_id"]
    try:
        check_dataset_id(dataset_id)
    except UsageError as error:
        raise Hidden from error
    if dataset_id not in doing.asking.workspace.registered():
        raise Hidden
    return dataset_id


def _job_id(doing: Doing) -> str:
    """A whole id: a page names no other."""
    found = doing.parts["job_id"]
    if len(found) < 16:
        raise Hidden
    return found


ROUTES: tuple[HTTPRouteHandler, ...] = (run, retry, cancel)
