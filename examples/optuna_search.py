"""Search settings with Optuna; a callback reports each evaluation, and prunes trials."""

import sys

import optuna

import rollwise


def objective(trial: optuna.Trial, **settings) -> float:
    """Train with the settings that a trial suggests; returns its held-out accuracy."""

    def report(row):
        for name, figure in row.get("heldout", {}).items():
            if name.startswith("avg@") and row["step"] not in reported:
                reported.add(row["step"])
                trial.report(figure["value"], row["step"])
                if trial.should_prune():
                    raise optuna.TrialPruned  # the run is saved first, then this is raised again

    reported: set[int] = set()
    result = rollwise.train(
        folder=f"runs/search/trial-{trial.number}",
        callbacks=[report],
        evaluation={"every": 2},
        learner={
            "learning_rate": trial.suggest_float("learning_rate", 3e-5, 1e-3, log=True),
            "mini_batches": trial.suggest_categorical("mini_batches", [4, 16]),
        },
        **settings,
    )
    trial.set_user_attr("report", str(result.report))
    [name] = [name for name in result.heldout["after"] if name.startswith("avg@")]
    return result.heldout["after"][name]["value"]


def search(trials: int, **settings) -> optuna.Study:
    """Try settings; half of the trials are compared at each evaluation, after the first two."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1)
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(direction="maximize", pruner=pruner, sampler=sampler)
    study.optimize(lambda trial: objective(trial, **settings), n_trials=trials)
    return study


if __name__ == "__main__":
    found = search(trials=int(sys.argv[1]) if len(sys.argv) > 1 else 8, steps=16)
    for each in found.trials:
        print(each.number, each.state.name, each.params, each.value)
    print("best:", found.best_params, found.best_trial.user_attrs["report"])
