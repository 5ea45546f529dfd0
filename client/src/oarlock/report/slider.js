(() => {
  const gallery = document.querySelector(".gallery");
  const slider = gallery.querySelector("#slider");
  const output = gallery.querySelector("output");
  const frames = [...gallery.querySelectorAll(".frame")];
  const show = () => {
    frames.forEach((frame, place) => { frame.hidden = place !== Number(slider.value); });
    const step = frames[Number(slider.value)].dataset.step;
    output.textContent = step;
    slider.setAttribute("aria-valuetext", `step ${step}`);
  };
  // The step that a link names, as `#pictures-1000`: without a script it leads there, too.
  const choose = () => {
    const place = frames.findIndex((frame) => `#${frame.id}` === location.hash);
    if (place >= 0) slider.value = place;
    show();
  };
  gallery.querySelector(".slider").hidden = frames.length < 2;
  slider.addEventListener("input", () => {
    show();
    history.replaceState(null, "", `#${frames[Number(slider.value)].id}`);
  });
  addEventListener("hashchange", choose);
  choose();
})();
